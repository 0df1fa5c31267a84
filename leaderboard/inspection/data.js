// The record with its masks unpacked, and the state of the page, kept in the URL's fragment so that a link restores it.

const data = JSON.parse(document.getElementById("data").textContent);
const BRANCHES = ["attention", "MLP"];
const LAYERS = data.layers, SITES = 2 * LAYERS, TOKENS = data.pieces.length;
const SPECS = data.methods.map((one) => one.spec);
const percent = (share) => (100 * share).toFixed(1);
const keyOf = (saving) => String(Number(saving.toPrecision(6)));

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const unpacked = new Map(); // unpacked masks by their text, so that each is unpacked once

/** For a mask in base 64, a function of token and site that says whether the token executes the site. */
function mask(text) {
  if (!unpacked.has(text)) unpacked.set(text, bytesOf(text));
  const bytes = unpacked.get(text);
  return (token, site) => { const at = token * SITES + site; return (bytes[at >> 3] >> (7 - (at & 7))) & 1; };
}

const VIEWS = { runs: "what is executed", scores: "scores" };
let state = fromFragment();

/** The state in a URL's fragment; a value that does not exist in this record is replaced by the default. */
function fromFragment() {
  const said = new URLSearchParams(location.hash.slice(1));
  const pick = (key, known, usual) => (known.includes(said.get(key)) ? said.get(key) : usual);
  return {
    method: pick("method", SPECS, SPECS[0]),
    saving: pick("saving", data.savings.map(keyOf), keyOf(data.first_saving)),
    view: pick("view", Object.keys(VIEWS), "runs"),
    theme: pick("theme", ["auto", "light", "dark"], "auto"),
  };
}

function change(changes) {
  state = { ...state, ...changes };
  history.replaceState(null, "", `#${new URLSearchParams(state)}`);
  render();
}

const method = () => data.methods[SPECS.indexOf(state.method)];
/** The shown method at the shown saving; `undefined` if its dial has no value for it. */
const point = () => method().points[state.saving];

/** The mask of the shown method and saving, or `null`. */
function shownMask() {
  return point() ? mask(point().bits) : null;
}

/** The score of a token at a site as a share of the site's range, and as a number; `null` if there is none. */
function scored(token, site) {
  const scores = method().scores;
  if (!scores) return null;
  if (!unpacked.has(scores.bytes)) unpacked.set(scores.bytes, bytesOf(scores.bytes));
  const level = unpacked.get(scores.bytes)[token * SITES + site];
  if (level === 255) return null;
  const [low, high] = scores.ranges[site];
  return { share: level / 254, value: low + (high - low) * level / 254 };
}
