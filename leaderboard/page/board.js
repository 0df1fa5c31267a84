// The page: switches, one chart and one table for each task.

/** Of every method of the page a colour, a marker and a stroke that no other method has; controls are grey. */
function look(name) {
  const place = data.looks.indexOf(name);
  if (place >= 0) return { colour: `c${place % 8}`, kind: (place + Math.floor(place / 24)) % 6, dash: Math.floor(place / 8) % 3 };
  const controls = [...METHODS.values()].filter((one) => one.control).map((one) => one.label);
  return { colour: "cc", kind: Math.max(0, controls.indexOf(name)) % 6, dash: 1 + (controls.indexOf(name) % 2) };
}

const shownAs = { axis: data.axes, phase: { all: "all tokens" }, value: data.values, metric: { headline: "each task's first" }, columns: { facts: "what each method is and cost" } };
const text = (key, one) => (shownAs[key]?.[one]) || (key === "level" ? `${one} %` : one);
const select = (key, title) => element("label", { id: `label-${key}` }, title, element("select", { id: `choose-${key}`, onchange: (event) => change({ [key]: event.target.value }) }));

function controls() {
  const boards = element("select", { id: "choose-board", onchange: (event) => change({ board: event.target.value, pins: [], open: "", sort: "" }) },
    ...[[true, "featured"], [false, "sandbox"]].map(([featured, title]) => element("optgroup", { label: title }, ...data.boards.filter((one) => one.featured === featured).map((one) => element("option", { value: one.key }, one.name)))).filter((group) => group.children.length));
  byId("switch").append(element("label", { id: "label-board" }, "model and recipe", boards), select("level", "saving"), select("axis", "saved compute"), select("phase", "phase"), select("setting", "setting or shape"));
  byId("controls").append(select("value", "value"), select("metric", "metric"), select("task", "task"), select("columns", "columns"),
    element("label", {}, "methods with", element("input", { id: "choose-filter", type: "search", oninput: (event) => change({ filter: event.target.value }) })),
    select("theme", "theme"), element("button", { type: "button", id: "copy", onclick: copyLink }, "copy link"));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("switch").hidden = byId("controls").hidden = !data.boards.length;
}

/** The switches as the state has them. */
function switches() {
  const there = options(state.board, state.axis);
  for (const key of Object.keys(there)) {
    const chooser = byId(`choose-${key}`);
    if (!chooser) continue;
    const same = key === "board" || (chooser.options.length === there[key].length && there[key].every((one, at) => chooser.options[at].value === one));
    if (!same) chooser.replaceChildren(...there[key].map((one) => element("option", { value: one }, text(key, one))));
    chooser.value = state[key];
  }
  if (byId("choose-filter").value !== state.filter) byId("choose-filter").value = state.filter;
  byId("label-phase").hidden = there.phase.length < 2;
  byId("label-setting").hidden = !there.setting.length;
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    byId("status").textContent = "The link was copied to the clipboard.";
  } catch {
    byId("status").textContent = `This page has no access to the clipboard. The link: ${location.href}`;
  }
}

function render() {
  switches();
  if (state.theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = state.theme;
  if (!state.board || !current()) return; // it is rendered again when the numbers are there
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
  answer();
  for (const link of document.querySelectorAll("a.download")) link.href = `${data.rows_folder}/${viewName()}.${link.dataset.ending}`;
  const tables = chosen();
  byId("board").replaceChildren(...tables.map(section));
  byId("board").prepend(...pictures(tables));
  if (!tables.length) byId("board").append(element("p", { class: "note" }, "No table here has this axis, phase and metric. Metrics other than a task's first are shown pooled over the phases only. Log-likelihood tasks generate no tokens; saved time needs `adaptive-bench time`."));
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  fit();
  drawer();
}

let drawing = 0;
/** The tables with the methods that a filter leaves, at once; the charts as soon as a reader stops typing. */
function sift() {
  if (!state.board || !current()) return;
  const tables = chosen();
  for (const table of tables) {
    const there = document.querySelector(`section.task[data-title="${CSS.escape(table.title)}"]`);
    if (there) there.replaceWith(section(table)); else return void render();
  }
  clearTimeout(drawing);
  drawing = setTimeout(() => { document.querySelector(".charts")?.remove(); byId("board").prepend(...pictures(chosen())); }, 120);
}

/** Intervals stand behind their scores, or below them in a table that would be too wide. */
function fit() {
  const wide = [...document.querySelectorAll("table.levels")].map((table) => { table.classList.remove("stacked"); return table; })
    .filter((table) => table.parentElement.scrollWidth > table.parentElement.clientWidth);
  for (const table of wide) table.classList.add("stacked");
}
let resizing = 0;
addEventListener("resize", () => { fit(); clearTimeout(resizing); resizing = setTimeout(render, 150); });

const visible = (name) => name.toLowerCase().includes(state.filter.toLowerCase());

function section(table) {
  const rows = sorted(table, table.rows.filter((row) => visible(row.method)));
  const shown = state.rows === "all" ? rows : rows.slice(0, MOST_ROWS);
  return element("section", { class: "task", "data-task": table.task, "data-title": table.title }, element("h2", {}, table.title), grid(table, shown, rows.length),
    shown.length < rows.length ? element("p", { class: "note" }, `The first ${shown.length} of ${rows.length} methods in this order. `, element("button", { type: "button", onclick: () => change({ rows: "all" }) }, "show all")) : null,
    ...table.notes.map((note) => element("p", { class: "note" }, note)));
}

const MOST_LIT = 5, MOST_CURVES = 24, FLOOR = 1; // lines with names, lines at all, and percent
/** Names of the lines to light: what the reader pinned, else the first of the ranking; then the controls that matter. */
function lit() {
  const found = standing(), ranked = found ? found.lines.filter((one) => !one.control).map((one) => one.label) : [...METHODS.keys()];
  const leader = found && found.leader ? [found.leader] : [];
  const chosen = unique(state.pins.length ? [...state.pins, ...leader] : [...leader, ...ranked]).filter(visible).slice(0, state.pins.length ? MOST_LIT : 3);
  const controls = ["static_depth[trained=true]", "random_skip[trained=true]", "random_skip"].filter((name) => METHODS.has(name) && visible(name) && !chosen.includes(name)).slice(0, 2);
  return [...chosen, ...controls].slice(0, MOST_LIT);
}

/** Whether nothing but the floor would be seen: shares of which none is above 1 % once anything is saved. */
const atFloor = (table) => table.compared.endsWith("(%)") && table.rows.every((row) => row.cells.every((cell, at) => !cell || Number(table.levels[at]) === 0 || cell.score === NONE || Number(cell.score) <= FLOOR));

/** A chart for each task. */
function pictures(tables) {
  const value = state.value === "reach" ? "kept" : state.value;
  const width = Math.max(280, Math.min(620, byId("board").clientWidth / (byId("board").clientWidth > 840 ? 2 : 1) - 12));
  const names = lit();
  const found = tables.map((table) => {
    const title = value === "score" ? table.compared : `${table.task}: ${data.values[value]}${state.value === "reach" ? "; the line is at 90 %" : ""}`;
    if (atFloor(table)) return element("figure", {}, element("figcaption", {}, title), element("p", { class: "note" }, `No method scores above ${FLOOR} % at any level above 0 %: there is nothing to draw.`));
    const readout = element("p", { class: "readout", "aria-live": "polite" }, "Point at a line, or use the arrow keys: its value appears here.");
    const drawn = picture(table, value, names, width, (said) => { readout.textContent = said; });
    return drawn && element("figure", {}, element("figcaption", {}, title), drawn, readout);
  }).filter(Boolean);
  return found.length ? [element("div", { class: "charts" }, ...found)] : [];
}

function picture(table, value, names, width, say) {
  const rows = table.rows.filter((row) => visible(row.method));
  const numbers = (name) => { const row = rows.find((one) => one.method === name); return row ? row.cells.map((cell) => (cell ? numeric(shown(cell, value)[0]) : null)) : []; };
  const point = (cell) => {
    const [said, ...ends] = shown(cell, value) || [NONE], [low, high] = ends.map(numeric);
    return said === NONE ? null : { y: numeric(said), low: low ?? null, high: high ?? null, text: `${said}${ends[0] === NONE ? "" : ` [${ends.join(", ")}]`}${cell.marks}` };
  };
  const order = (row) => (names.includes(row.method) ? names.indexOf(row.method) : names.length);
  const curves = rows.filter((row) => !(row.method in DASHES)).sort((a, b) => order(a) - order(b)).slice(0, MOST_CURVES)
    .map((row) => ({ name: row.method, ...look(row.method), lit: names.includes(row.method), points: row.cells.map(point) }));
  const rules = Object.keys(DASHES).map((name) => ({ name, y: numbers(name).find((one) => one !== null) ?? null })).filter((rule) => rule.y !== null);
  if (state.value === "reach") rules.push({ name: "90 %", y: 90 });
  const pick = (name) => change({ pins: state.pins.includes(name) ? state.pins.filter((one) => one !== name) : [...state.pins, name] });
  return chart({ x: table.levels.map(Number), curves, rules, random: numbers("random_skip"), xTitle: `${table.axis_title} (%)`, key: `${table.title} chart`,
    yTitle: { score: table.metric.split(",")[0], kept: "% of dense", own: "% of own at 0 %", area: "mean % of dense" }[value], title: `${table.title}, ${data.values[value]}`,
    lowerIsBetter: value === "score" && table.lower_is_better }, width, say, pick);
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

const lines = new Map(); // of a table the rows that were made, by method and by what is seen in them
/** A row of a table, made once for everything that is seen in it: a filter or another order makes none again. */
function made(table, row, make) {
  if (!lines.has(table)) lines.set(table, new Map());
  const known = lines.get(table), seen = [row.method, state.value, state.columns, state.pins.includes(row.method)].join("\n");
  if (!known.has(seen)) known.set(seen, make());
  return known.get(seen);
}

// A name, its parameters smaller below it; a line may end after what opens or separates them, before their values.
const pieces = (text) => text.split(/(?<=[[,=_])|(?=@)/).flatMap((piece, at) => (at ? [element("wbr", {}), piece] : [piece]));
const breakable = (name) => {
  const at = name.indexOf("[");
  return at < 0 ? pieces(name) : [name.slice(0, at), element("small", { class: "parameters" }, ...pieces(name.slice(at)))];
};

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
  const body = rows.map((row) => made(table, row, () => element("tr", { class: state.pins.includes(row.method) ? "pinned" : "" }, name(table, row.method), ...facts(row.method), ...cells(row))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title }, element("table", { class: "levels" },
    element("caption", {}, reach ? "Largest saving up to which 90 % of the dense score is kept" : `${data.values[state.value]} at matched levels of ${table.axis_title}; ${matching} of ${table.rows.length} methods`),
    element("thead", {}, element("tr", {}, header("method", "method", "up"), ...columns)), element("tbody", {}, ...body)));
}

/** The buttons that pin a method and open what is behind it. */
function named(where, label) {
  const pinned = state.pins.includes(label);
  return element("span", { class: "named" },
    element("button", { type: "button", class: "pin", "aria-pressed": String(pinned), "aria-label": `pin ${label}`, "data-key": `${where} pin ${label}`,
      onclick: () => change({ pins: pinned ? state.pins.filter((one) => one !== label) : [...state.pins, label] }) }, pinned ? "★" : "☆"),
    element("button", { type: "button", class: "open", "data-key": `${where} open ${label}`, onclick: () => change({ open: label }) }, ...breakable(label)), leads(label));
}
/** The link to a method's own page; a board in one file has none. */
function leads(label) {
  const { page } = METHODS.get(label);
  return page ? element("a", { class: "about", href: page, "aria-label": `page of ${label}` }) : null;
}

const badges = (method) => [method.causality === "C2" ? element("abbr", { class: "batched", title: "Decisions depend on the other rows of the batch" }, "C2") : null,
  method.stale ? element("abbr", { class: "stale", title: "Measured with another version of the code" }, "old") : null];
const name = (table, label) => element("th", { scope: "row" }, key(label), named(table.title, label), ...badges(METHODS.get(label)));

/** The line and marker of a method in the charts. */
function key(label) {
  if (label in DASHES) return shape("svg", { class: "key", viewBox: "0 0 22 14", "aria-hidden": "true" }, shape("path", { class: "rule", d: "M0 7L22 7", "stroke-dasharray": DASHES[label] }));
  const { colour, kind, dash } = look(label);
  return shape("svg", { class: "key", viewBox: "0 0 22 14", "aria-hidden": "true" }, shape("g", { class: `series ${colour}` }, shape("path", { class: "line", d: "M0 7L22 7", "stroke-dasharray": STROKES[dash] }), marker(kind, 11, 7, 4.5)));
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
  return element("td", {}, row.reach === NONE ? element("span", { class: "na" }, "not even at its first level") : element("b", {}, `${row.to_end ? "≥ " : ""}${row.reach} %`));
}
