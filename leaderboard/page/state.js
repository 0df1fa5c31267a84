// What is shown lives in the URL fragment, so that a link restores it, from a disk as well.

const data = JSON.parse(document.getElementById("data").textContent);
// Cells come as lists, for the sake of the file's size; from here on every text has its name.
for (const row of data.tables.flatMap((table) => table.rows)) row.cells = row.cells.map((texts) => texts && Object.fromEntries(texts.map((text, at) => [data.columns[at], text])));
const NONE = data.none;
const unique = (list) => [...new Set(list)];
const OPTIONS = {
  axis: unique(data.tables.map((one) => one.axis)),
  phase: unique(data.tables.map((one) => one.phase)),
  setting: unique(data.tables.map((one) => one.setting).filter(Boolean)),
  value: Object.keys(data.values),
  metric: ["headline", ...unique(data.tables.map((one) => one.metric))],
  task: ["all", ...unique(data.tables.map((one) => one.task))],
  columns: ["levels", "facts", "both"],
  rows: ["first", "all"],
  theme: ["auto", "light", "dark"],
};
const DEFAULTS = { axis: data.axis, phase: data.phase, setting: OPTIONS.setting[0] || "", value: "score", metric: "headline", task: "all", columns: "levels", rows: "first", theme: "auto",
  filter: "", sort: "", pins: [], open: "" };
const METHODS = new Map(data.methods.map((one) => [one.label, one]));
const MOST_ROWS = data.most_rows, MOST_CURVES = 24; // of one table and of one chart, unless all are asked for
const NAMES = data.methods.map((one) => one.label);
let state = fromFragment();

/** The state a fragment spells; whatever it says that does not exist here is the default. */
function fromFragment() {
  const said = new URLSearchParams(location.hash.slice(1));
  const found = { ...DEFAULTS };
  for (const [key, known] of Object.entries(OPTIONS)) if (known.includes(said.get(key))) found[key] = said.get(key);
  found.filter = (said.get("filter") || "").slice(0, 80);
  if (/^(method|reach|fact\d|\d+(\.\d+)?)-(up|down)$/.test(said.get("sort") || "")) found.sort = said.get("sort");
  found.pins = said.getAll("pin").filter((name) => NAMES.includes(name));
  if (NAMES.includes(said.get("open"))) found.open = said.get("open");
  return found;
}

function toFragment() {
  const said = new URLSearchParams();
  for (const key of [...Object.keys(OPTIONS), "filter", "sort", "open"]) if (state[key] !== DEFAULTS[key]) said.set(key, state[key]);
  for (const pin of state.pins) said.append("pin", pin);
  return said.toString();
}

/** Change the state, its link, and what is shown. */
function change(changes) {
  state = { ...state, ...changes };
  const fragment = toFragment();
  history.replaceState(null, "", fragment ? `#${fragment}` : "#");
  render();
}

/** The tables the state asks for, one for each task and metric. */
function chosen() {
  const pooled = data.pooled.includes(state.axis);
  return data.tables.filter((one) => one.axis === state.axis && one.phase === (pooled ? "all" : state.phase) &&
    (one.setting === null || one.setting === state.setting || !settingsOf(state.axis).includes(state.setting)) &&
    (state.metric === "headline" ? one.headline : one.metric === state.metric) && (state.task === "all" || one.task === state.task));
}

function settingsOf(axis) {
  return unique(data.tables.filter((one) => one.axis === axis).map((one) => one.setting).filter(Boolean));
}

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
