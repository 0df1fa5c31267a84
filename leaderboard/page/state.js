// What is shown lives in the URL fragment, so that a link restores it, from a disk as well.

const data = JSON.parse(document.getElementById("data").textContent);
const NONE = data.none;
const unique = (list) => [...new Set(list)];
const BOARDS = new Map(data.boards.map((one) => [one.key, one]));
const PARTS = new Map(); // tables of a board's axis, and its runs, by name: those that came with the page, then others
const ASKED = new Set();
const MOST_ROWS = data.most_rows; // of one table, unless all are asked for

/** Keep a part. Cells come as lists, for the sake of the file's size; from here on every text has its name. */
function arrived(name, part) {
  for (const row of (part.tables || []).flatMap((table) => table.rows)) row.cells = row.cells.map((texts) => texts && Object.fromEntries(texts.map((text, at) => [data.columns[at], text])));
  PARTS.set(name, part);
}
for (const [name, part] of Object.entries(data.parts)) arrived(name, part);

/** A part, or `null` while it is on its way: a script, as a page on a disk may fetch nothing. */
function part(name) {
  if (PARTS.has(name) || ASKED.has(name)) return PARTS.get(name) || null;
  ASKED.add(name);
  const script = document.createElement("script");
  script.src = `${data.folder}/${name}.js`;
  // The runs are shown in the drawer alone: what stands behind it, and the button that takes the focus back, stay.
  script.onload = () => { byId("status").textContent = missed; (name.endsWith("-runs") ? drawer : render)(); };
  script.onerror = () => { byId("status").textContent = `${data.folder}/${name}.js could not be read. It belongs beside this page.`; };
  byId("status").textContent = "Reading more numbers …";
  document.head.append(script);
  return null;
}

const VALUES = Object.keys(data.values);
const FIXED = { value: VALUES, columns: ["levels", "facts", "both"], rows: ["first", "all"], theme: ["auto", "light", "dark"] };
/** What can be chosen on a board and an axis. */
function options(board, axis) {
  const about = BOARDS.get(board);
  if (!about) return { board: [], axis: [], phase: [], setting: [], level: [], metric: ["headline"], task: ["all"], ...FIXED };
  const view = about.views[axis] || about.views[about.axis];
  return { board: [...BOARDS.keys()], axis: Object.keys(about.views), phase: view.phases, setting: view.settings, level: view.levels,
    metric: ["headline", ...about.metrics], task: ["all", ...about.tasks], ...FIXED };
}
/** What is chosen unless a reader says otherwise. */
function defaults(board, axis) {
  const about = BOARDS.get(board) || { axis: data.axis, phase: data.phase, views: {} };
  const there = about.views[axis] ? axis : about.axis;
  const view = about.views[there] || { phases: [], settings: [], level: "" };
  return { board, axis: about.axis, phase: view.phases.includes(about.phase) ? about.phase : view.phases[0] || "all", setting: view.settings[0] || "", level: view.level,
    value: "score", metric: "headline", task: "all", columns: "levels", rows: "first", theme: "auto", filter: "", sort: "", pins: [], open: "" };
}
const methodsOf = (board) => new Map((BOARDS.get(board)?.methods || []).map((one) => [one.label, one]));
let missed = ""; // what a link asked for that is not here, in words
let state = fromFragment();
let METHODS = methodsOf(state.board);

/** The state a fragment spells; whatever it says that does not exist here is the default, and `missed` says so. */
function fromFragment() {
  const said = new URLSearchParams(location.hash.slice(1));
  const board = BOARDS.has(said.get("board")) ? said.get("board") : data.board;
  const axis = said.get("axis");
  const found = defaults(board, axis);
  if (options(board, axis).axis.includes(axis)) found.axis = axis;
  for (const [key, known] of Object.entries(options(board, found.axis))) if (known.includes(said.get(key))) found[key] = said.get(key);
  const lacks = ["board", ...Object.keys(options(board, found.axis))].filter((key, at, all) => all.indexOf(key) === at && said.get(key) && said.get(key) !== found[key]);
  const named = (key) => (key === "axis" && data.axes[said.get(key)]) || said.get(key).slice(0, 40);
  missed = lacks.length ? `The link asks for what this board does not have: ${lacks.map((key) => `${key} “${named(key)}”`).join(", ")}.${said.get("axis") === "time" && lacks.includes("axis") ? " Nothing was timed here (adaptive-bench run --time)." : ""} Shown instead: ${data.axes[found.axis] || "its default"}${found.level ? ` at ${found.level} %` : ""}.` : "";
  found.filter = (said.get("filter") || "").slice(0, 80);
  if (/^(method|reach|fact\d|\d+(\.\d+)?)-(up|down)$/.test(said.get("sort") || "")) found.sort = said.get("sort");
  const names = methodsOf(board);
  found.pins = said.getAll("pin").filter((name) => names.has(name));
  if (names.has(said.get("open"))) found.open = said.get("open");
  return found;
}

function toFragment() {
  const said = new URLSearchParams(), usual = { ...defaults(state.board, state.axis), board: data.board };
  for (const key of [...Object.keys(options(state.board, state.axis)), "filter", "sort", "open"]) if (state[key] !== usual[key]) said.set(key, state[key]);
  for (const pin of state.pins) said.append("pin", pin);
  return said.toString();
}

/** Change the state, its link, and what is shown. What the new board or axis lacks is its default. */
function change(changes) {
  const wanted = { ...state, ...changes };
  const usual = defaults(wanted.board, wanted.axis);
  if (!BOARDS.get(wanted.board)?.views[wanted.axis]) wanted.axis = usual.axis;
  for (const [key, known] of Object.entries(options(wanted.board, wanted.axis))) if (!known.includes(wanted[key])) wanted[key] = usual[key];
  METHODS = methodsOf(wanted.board);
  if (!("open" in changes || "filter" in changes)) { missed = ""; byId("status").textContent = ""; }
  const only = Object.keys(changes).join();
  wanted.pins = wanted.pins.filter((name) => METHODS.has(name));
  if (!METHODS.has(wanted.open)) wanted.open = "";
  state = wanted;
  const fragment = toFragment();
  history.replaceState(null, "", fragment ? `#${fragment}` : "#");
  ({ open: drawer, filter: sift }[only] || render)();
}

/** The tables and ranked tables of the board and axis, `null` while they are on their way. */
const phaseNow = () => (data.pooled.includes(state.axis) ? "all" : state.phase);
const viewName = () => `${state.board}-${state.axis}${phaseNow() === "all" ? "" : `-${phaseNow()}`}`;
const current = () => (state.board ? part(viewName()) : { tables: [], ranked: [] });
/** All its tables; those of metrics that are no task's first lie in another file. */
const tablesNow = () => [...(current()?.tables || []), ...(state.board && state.metric !== "headline" ? part(viewName() + data.more)?.tables || [] : [])];
const inView = (one) => one.axis === state.axis && one.phase === phaseNow() && (one.setting === null || one.setting === state.setting);
/** The tables the state asks for, one for each task and metric. */
const chosen = () => tablesNow().filter((one) => inView(one) && (state.metric === "headline" ? one.headline : one.metric === state.metric) && (state.task === "all" || one.task === state.task));
/** The ranked table at the level. */
const standing = () => (current()?.ranked || []).find((one) => inView(one) && one.level === state.level) || null;

/** Text of a cell under the chosen value, and its interval. */
function shown(cell, value = state.value) {
  if (!cell) return null;
  if (value === "kept") return [cell.kept, cell.kept_low, cell.kept_high];
  if (value === "own") return [cell.own, NONE, NONE];
  if (value === "area") return [cell.area, NONE, NONE];
  return [cell.score, cell.low, cell.high];
}

/** What was saved at a cell, by the name of the saving. */
const saving = (cell, name) => cell[`saved ${name}`] ?? NONE;

/** A fact of a method as a number where it is one, for sorting. */
function fact(label, at) {
  const text = METHODS.get(label).facts[data.facts[at]];
  const number = Number(text.replaceAll(",", ""));
  return text === NONE ? null : Number.isFinite(number) ? number : text;
}

const numeric = (text) => (text === NONE || text === undefined ? null : Number(text));
