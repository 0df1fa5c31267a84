// The page: controls, one chart and one table for each task. Text enters only as text, never as markup.

const byId = (id) => document.getElementById(id);

/** An HTML element with properties and children. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

const LOOKS = new Map();
NAMES.filter((name) => !METHODS.get(name).control).forEach((name, at) => LOOKS.set(name, { colour: `c${at % 8}`, kind: at % 6 }));
NAMES.filter((name) => !LOOKS.has(name)).forEach((name, at) => LOOKS.set(name, { colour: "cc", kind: at % 6 }));

function controls() {
  const select = (key, title, names) => element("label", {}, title,
    element("select", { id: `choose-${key}`, onchange: (event) => change({ [key]: event.target.value }) },
      ...OPTIONS[key].map((one) => element("option", { value: one }, names[one] || one))));
  byId("controls").append(
    select("axis", "saved compute", data.axes), select("phase", "phase", { all: "all tokens", prefill: "prefill", decode: "decode" }),
    ...(OPTIONS.setting.length ? [select("setting", "setting or shape", {})] : []),
    select("value", "value", data.values), select("metric", "metric", { headline: "each task's first" }), select("task", "task", {}), select("columns", "columns", { levels: "levels", facts: "what each method is and cost", both: "both" }),
    element("label", {}, "methods with", element("input", { id: "choose-filter", type: "search", oninput: (event) => change({ filter: event.target.value }) })),
    select("theme", "theme", {}),
    element("button", { type: "button", id: "copy", onclick: copyLink }, "copy link"));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").hidden = false;
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    byId("status").textContent = "The link is in the clipboard.";
  } catch {
    byId("status").textContent = `The clipboard is closed to this page. The link: ${location.href}`;
  }
}

function render() {
  for (const key of Object.keys(OPTIONS)) if (byId(`choose-${key}`)) byId(`choose-${key}`).value = state[key];
  if (byId("choose-filter").value !== state.filter) byId("choose-filter").value = state.filter;
  byId("choose-phase").parentElement.hidden = data.pooled.includes(state.axis);
  if (byId("choose-setting")) byId("choose-setting").parentElement.hidden = !settingsOf(state.axis).length;
  if (state.theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = state.theme;
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
  const tables = chosen();
  byId("board").replaceChildren(...pictures(tables), ...tables.map(section));
  if (!tables.length) byId("board").append(element("p", { class: "note" }, "No table here has this axis, phase and metric. Other metrics than a task's first stand pooled over the phases alone. Log-likelihood tasks write no tokens; saved time needs `adaptive-bench time`."));
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  fit();
  drawer();
}

/** Intervals stand behind their scores, or below them in a table that would be too wide. */
function fit() {
  const wide = [...document.querySelectorAll("table.levels")].map((table) => { table.classList.remove("stacked"); return table; })
    .filter((table) => table.parentElement.scrollWidth > table.parentElement.clientWidth);
  for (const table of wide) table.classList.add("stacked");
}
addEventListener("resize", fit);

const visible = (name) => name.toLowerCase().includes(state.filter.toLowerCase());

function section(table) {
  const rows = sorted(table, table.rows.filter((row) => visible(row.method)));
  const shown = state.rows === "all" ? rows : rows.slice(0, MOST_ROWS);
  return element("section", { class: "task", "data-task": table.task }, element("h2", {}, table.title), grid(table, shown, rows.length),
    shown.length < rows.length ? element("p", { class: "note" }, `The first ${shown.length} of ${rows.length} methods in this order. `, element("button", { type: "button", onclick: () => change({ rows: "all" }) }, "show all")) : null,
    ...table.notes.map((note) => element("p", { class: "note" }, note)));
}

function meanOf(row, value) {
  const found = row.cells.map((cell) => (cell ? numeric(shown(cell, value)[0]) : null)).filter((one) => one !== null);
  return found.reduce((sum, one) => sum + one, 0) / (found.length || 1);
}

const means = new Map(Object.keys(data.values).map((value) => [value, new WeakMap()]));
/** Rows of a chart: all of them, or the pinned, the controls and the best where there are too many to read. */
function drawable(rows, value, lower) {
  if (rows.length <= MOST_CURVES) return rows;
  const known = means.get(value);
  const mean = (row) => { if (!known.has(row)) known.set(row, meanOf(row, value)); return known.get(row); };
  const first = (row) => (state.pins.includes(row.method) ? 0 : METHODS.get(row.method).control ? 1 : 2);
  const sign = value === "score" && lower ? 1 : -1;
  const keyed = rows.map((row) => [first(row), sign * mean(row), row]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return keyed.slice(0, MOST_CURVES).map(([, , row]) => row);
}

/** One key for all charts, then the charts. */
function pictures(tables) {
  const found = tables.map((table) => [table, picture(table)]).filter(([, drawn]) => drawn);
  if (!found.length) return [];
  const value = state.value === "reach" ? "kept" : state.value;
  const used = new Set(tables.flatMap((table) => drawable(table.rows.filter((row) => visible(row.method)), value, table.lower_is_better).map((row) => row.method)));
  const there = (name) => used.has(name);
  const icon = (...shapes) => shape("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, ...shapes);
  const rule = (name) => [icon(shape("path", { class: `rule ${name}`, d: "M0 7L26 7", "stroke-dasharray": DASHES[name] })), name];
  const region = [icon(shape("rect", { class: "noskill", width: 26, height: 14 })), "no skill: what random skipping reaches"];
  const line = (name) => [icon(shape("g", { class: `series ${LOOKS.get(name).colour}` }, shape("path", { class: "line", d: "M0 7L26 7" }), marker(LOOKS.get(name).kind, 13, 7))), name];
  const keys = [...Object.keys(DASHES).filter(there).map(rule), ...(there("random_skip") ? [region] : []), ...NAMES.filter((name) => !(name in DASHES) && there(name)).map(line)];
  return [element("ul", { class: "keys", "aria-label": "Key of the charts" }, ...keys.map((key) => element("li", {}, ...key))),
    element("div", { class: "charts" }, ...found.map(([table, drawn]) => element("figure", {}, element("figcaption", {}, table.compared), drawn)))];
}

function picture(table) {
  const value = state.value === "reach" ? "kept" : state.value;
  const rows = table.rows.filter((row) => visible(row.method));
  const texts = (name) => { const row = rows.find((one) => one.method === name); return row ? row.cells.map((cell) => (cell ? numeric(shown(cell, value)[0]) : null)) : []; };
  const rule = (name) => texts(name).find((one) => one !== null) ?? null;
  const point = (cell) => { const [y, low, high] = (shown(cell, value) || [NONE]).map(numeric); return y === null ? null : { y, low, high }; };
  const curves = drawable(rows, value, table.lower_is_better).filter((row) => !(row.method in DASHES)).map((row) => ({ name: row.method, ...LOOKS.get(row.method),
    faded: state.pins.length > 0 && !state.pins.includes(row.method), points: row.cells.map(point) }));
  return chart({ x: table.levels.map(Number), curves, dense: rule("dense"), base: rule("base"), random: texts("random_skip"), xTitle: `${table.axis_title} (%)`,
    yTitle: value === "score" ? table.metric.split(",")[0] : "%", title: `${table.title}, ${data.values[value]}`, lowerIsBetter: value === "score" && table.lower_is_better });
}

function sorted(table, rows) {
  const [by, way] = state.sort.split("-");
  const column = table.levels.indexOf(by);
  const key = (row) => (by === "method" ? row.method : by === "reach" ? numeric(row.reach) : by.startsWith("fact") ? fact(row.method, Number(by.slice(4))) : column >= 0 && row.cells[column] ? numeric(shown(row.cells[column])[0]) : null);
  const order = [...rows];
  if (by) order.sort((one, other) => {
    const a = key(one), b = key(other);
    if (a === null || b === null) return (a === null) - (b === null); // n/a last, either way
    return (way === "up" ? 1 : -1) * (typeof a === "string" ? a.localeCompare(String(b)) : a - b);
  });
  const pinned = (row) => (state.pins.includes(row.method) ? 0 : 1);
  return order.sort((one, other) => pinned(one) - pinned(other));
}

// A name in pieces between which a line may end: after what opens or separates parameters, before their values.
const breakable = (name) => name.split(/(?<=[[,=])|(?=@)/).flatMap((piece, at) => (at ? [element("wbr", {}), piece] : [piece]));

function grid(table, rows, matching) {
  const reach = state.value === "reach";
  const header = (by, text, first) => {
    const on = state.sort.startsWith(`${by}-`), up = state.sort === `${by}-up`;
    const next = on ? (up ? "" : `${by}-up`) : `${by}-${first}`;
    return element("th", { scope: "col", "aria-sort": on ? (up ? "ascending" : "descending") : "none" },
      element("button", { type: "button", "data-key": `${table.title} sort ${by}`, title: "Sort by this column", onclick: () => change({ sort: next }) }, text + (on ? (up ? " ▲" : " ▼") : "")));
  };
  const first = table.lower_is_better && state.value === "score" ? "up" : "down";
  const levels = reach ? [header("reach", "keeps 90 % up to", "down")] : table.levels.map((level) => header(level, `${level} %`, first));
  const about = state.columns === "levels" ? [] : data.facts.map((title, at) => header(`fact${at}`, title, "up"));
  const columns = [...about, ...(state.columns === "facts" ? [] : levels)];
  const facts = (label) => (state.columns === "levels" ? [] : data.facts.map((title) => element("td", {}, METHODS.get(label).facts[title])));
  const cells = (row) => (state.columns === "facts" ? [] : reach ? [farthest(row)] : row.cells.map((cell, at) => score(cell, table.best[at])));
  const body = rows.map((row) => element("tr", { class: state.pins.includes(row.method) ? "pinned" : "" }, name(table, row.method), ...facts(row.method), ...cells(row)));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title }, element("table", { class: "levels" },
    element("caption", {}, reach ? "Largest saving up to which 90 % of the dense score is kept" : `${data.values[state.value]} at matched levels of ${table.axis_title}; ${matching} of ${table.rows.length} methods`),
    element("thead", {}, element("tr", {}, header("method", "method", "up"), ...columns)), element("tbody", {}, ...body)));
}

function name(table, label) {
  const pinned = state.pins.includes(label);
  return element("th", { scope: "row" },
    element("button", { type: "button", class: "pin", "aria-pressed": String(pinned), "aria-label": `pin ${label}`, "data-key": `${table.title} pin ${label}`,
      onclick: () => change({ pins: pinned ? state.pins.filter((one) => one !== label) : [...state.pins, label] }) }, pinned ? "★" : "☆"),
    element("button", { type: "button", class: "open", "data-key": `${table.title} open ${label}`, onclick: () => change({ open: label }) }, ...breakable(label)),
    METHODS.get(label).causality === "C2" ? element("abbr", { class: "batched", title: "Decisions depend on the other rows of the batch" }, "C2") : null,
    METHODS.get(label).stale ? element("abbr", { class: "stale", title: "Measured with another version of the code" }, "old") : null);
}

/** What a paired test says of a cell, in words. */
function tested(cell, best) {
  if (cell.rank === undefined) return "";
  const n = `n = ${cell.n} seeds × documents`;
  if (cell.behind === NONE) return `leads the column, rank ${cell.rank}; ${n}`;
  return `${best} is better by ${cell.behind} [${cell.behind_low}, ${cell.behind_high}], p ${cell.p} (Holm), ${n}; rank ${cell.rank}`;
}

function score(cell, best) {
  if (!cell) return element("td");
  const [text, low, high] = shown(cell);
  if (text === NONE) return element("td", {}, element("span", { class: "na" }, "n/a"));
  const saved = data.saved.map((name) => `${name} ${saving(cell, name)}`).filter((one) => !one.endsWith(NONE)).join(", ");
  const said = tested(cell, best);
  const ranked = said && (state.value === "score" || state.value === "kept");
  return element("td", { title: `${said ? `${said}\n` : ""}${cell.seeds} seed(s); saved there in %: ${saved}` },
    element("span", { class: "whole" }, element("b", {}, text), cell.marks ? element("sup", {}, cell.marks) : null), " ",
    element("span", { class: "whole" }, low === NONE ? null : element("small", {}, `[${low}, ${high}]`), ranked ? " " : null,
      ranked ? element("i", { class: "rank" }, cell.rank) : null));
}

function farthest(row) {
  return element("td", {}, row.reach === NONE ? element("span", { class: "na" }, "not at its first level") : element("b", {}, `${row.to_end ? "≥ " : ""}${row.reach} %`));
}
