// The record, masks unpacked, and what is shown: in the URL's fragment, so that a link restores it, from a disk as well.

const data = JSON.parse(document.getElementById("data").textContent);
const BRANCHES = ["attention", "MLP"];
const LAYERS = data.layers, SITES = 2 * LAYERS, TOKENS = data.pieces.length;
const SPECS = data.methods.map((one) => one.spec);
const percent = (share) => (100 * share).toFixed(1);
const keyOf = (saving) => String(Number(saving.toPrecision(6)));

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const unpacked = new Map(); // masks by their text: each is read once

/** Whether a token executes a site, of a mask as base 64, as a function of token and site. */
function mask(text) {
  if (!unpacked.has(text)) unpacked.set(text, bytesOf(text));
  const bytes = unpacked.get(text);
  return (token, site) => { const at = token * SITES + site; return (bytes[at >> 3] >> (7 - (at & 7))) & 1; };
}

const VIEWS = { runs: "what is executed", scores: "scores" };
let state = fromFragment();

/** The state a fragment spells; whatever it says that does not exist here is the default. */
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
/** The method at the saving; `undefined` where its dial has no value for it. */
const point = () => method().points[state.saving];

/** The mask that is shown, or `null`. */
function shownMask() {
  return point() ? mask(point().bits) : null;
}

/** The score of a token at a site as a share of the site's range, and as a number; `null` where there is none. */
function scored(token, site) {
  const scores = method().scores;
  if (!scores) return null;
  if (!unpacked.has(scores.bytes)) unpacked.set(scores.bytes, bytesOf(scores.bytes));
  const level = unpacked.get(scores.bytes)[token * SITES + site];
  if (level === 255) return null;
  const [low, high] = scores.ranges[site];
  return { share: level / 254, value: low + (high - low) * level / 254 };
}
