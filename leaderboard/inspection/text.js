// The text with a tower on each token that shows what it executes, by layer, for attention and MLP.

const SVG = "http://www.w3.org/2000/svg";
function drawn(name, properties, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const CELL = { width: 9, height: Math.max(2.5, Math.min(7, 66 / LAYERS)), gap: LAYERS > 20 ? 0.5 : 1 };
const TOWER = { width: 2 * CELL.width + 2, height: LAYERS * (CELL.height + CELL.gap) };
const cell = (layer, branch, share = 1) =>
  `M${branch * (CELL.width + 2)},${(TOWER.height - (layer + 1) * (CELL.height + CELL.gap)).toFixed(2)}h${(CELL.width * share).toFixed(2)}v${CELL.height.toFixed(2)}h-${(CELL.width * share).toFixed(2)}z`;
const EMPTY_TOWER = Array.from({ length: SITES }, (_, site) => cell(site >> 1, site & 1)).join("");
const shownTokens = [];
let selected = 0;

/** Layers as `0–3, 5`. */
function ranges(layers) {
  if (layers.length === LAYERS) return "all layers";
  if (!layers.length) return "no layer";
  const parts = [];
  for (const layer of layers) {
    const last = parts.at(-1);
    if (last && last[1] === layer - 1) last[1] = layer; else parts.push([layer, layer]);
  }
  return `layer${layers.length > 1 ? "s" : ""} ${parts.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ")}`;
}

function buildText() {
  for (const [id, name, from, to] of [["prompt", "Tokens of the prompt", 0, data.prompt_tokens], ["written", "Tokens of the answer", data.prompt_tokens, TOKENS]]) {
    const list = byId(id);
    for (let token = from; token < to; token++) {
      const attention = drawn("path", { class: "attention" }), mlp = drawn("path", { class: "mlp" });
      const picture = drawn("svg", { width: TOWER.width, height: TOWER.height, "aria-hidden": "true" }, drawn("path", { class: "whole", d: EMPTY_TOWER }), attention, mlp);
      const lone = !data.pieces[token].trim();
      const option = element("span", { class: lone ? "token lone" : "token", role: "option", id: `token-${token}`, "aria-selected": "false" }, picture, element("span", { class: "piece" }, data.names[token]));
      option.addEventListener("click", () => { selectToken(token); list.focus({ preventScroll: true }); });
      option.addEventListener("pointerenter", () => tell(token));
      list.append(option);
      if (data.pieces[token].includes("\n")) list.append(element("span", { class: "line", role: "presentation" }));
      shownTokens.push({ option, attention, mlp, list });
    }
    if (to === from) continue;
    for (const [key, value] of Object.entries({ role: "listbox", tabindex: "0", "aria-label": name })) list.setAttribute(key, value);
    list.addEventListener("keydown", (event) => keyed(event, from, to));
    list.addEventListener("focus", () => { if (selected < from || selected >= to) selectToken(from); });
    list.addEventListener("pointerleave", () => tell(selected));
  }
}

/** Arrow keys move between tokens; up and down move between lines. */
function keyed(event, from, to) {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  let next = null;
  if (move) next = selected + move;
  else if (event.key === "Home") next = from;
  else if (event.key === "End") next = to - 1;
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") next = onNextLine(event.key === "ArrowDown" ? 1 : -1, from, to);
  if (next === null) return;
  event.preventDefault();
  selectToken(Math.max(from, Math.min(to - 1, next)));
}

function onNextLine(step, from, to) {
  const box = shownTokens[selected].option.getBoundingClientRect();
  let best = null, distance = Infinity, line = null;
  for (let token = selected + step; token >= from && token < to; token += step) {
    const other = shownTokens[token].option.getBoundingClientRect();
    if (Math.abs(other.bottom - box.bottom) < 4) continue;
    if (line !== null && Math.abs(other.bottom - line) > 4) break;
    line = other.bottom;
    if (Math.abs(other.left - box.left) < distance) [best, distance] = [token, Math.abs(other.left - box.left)];
  }
  return best;
}

function selectToken(token) {
  shownTokens[selected].option.setAttribute("aria-selected", "false");
  selected = token;
  const { option, list } = shownTokens[token];
  option.setAttribute("aria-selected", "true");
  list.setAttribute("aria-activedescendant", option.id);
  option.scrollIntoView({ block: "nearest" });
  tell(token);
}

function executed(keep, token) {
  return BRANCHES.map((_, branch) => Array.from({ length: LAYERS }, (_, layer) => layer).filter((layer) => keep(token, 2 * layer + branch)));
}

/** Describes a token in words: what it is and what it executes; with `long`, its scores too. */
function words(token, keep, long) {
  const name = `“${data.names[token]}” (${data.kinds[token]})`;
  if (!keep) return name;
  const [attention, mlp] = executed(keep, token);
  const ran = attention.length + mlp.length;
  const same = attention.join() === mlp.join();
  const runs = same ? `runs ${ranges(attention)}` : `attention runs in ${ranges(attention)}, MLP in ${ranges(mlp)}`;
  const scores = long && method().scores ? `; mean score ${meanScore(token)}` : "";
  return `${name}: ${runs}; ${ran} of ${SITES} branches${scores}`;
}

function meanScore(token) {
  const known = Array.from({ length: SITES }, (_, site) => scored(token, site)).filter((one) => one !== null);
  return known.length ? short(known.reduce((sum, one) => sum + one.value, 0) / known.length) : "n/a";
}

function tell(token) {
  byId("readout").textContent = `Token ${token}, ${words(token, shownMask(), true)}`;
}

function drawText() {
  const keep = shownMask(), scores = state.view === "scores" && method().scores;
  shownTokens.forEach(({ option, attention, mlp }, token) => {
    const paths = ["", ""];
    for (let site = 0; site < SITES; site++) {
      const one = scores ? scored(token, site) : null;
      if (scores ? one : keep && keep(token, site)) paths[site & 1] += cell(site >> 1, site & 1, scores ? Math.max(0.06, one.share) : 1);
    }
    attention.setAttribute("d", paths[0]);
    mlp.setAttribute("d", paths[1]);
    option.setAttribute("aria-label", words(token, keep, false));
  });
  const swatch = (name) => element("span", { class: `swatch ${name}` });
  const about = scores
    ? " length: the score with nothing skipped, from the lowest to the highest of its site"
    : " filled: executed, empty: skipped";
  byId("legend").replaceChildren(swatch("attention"), " attention, ", swatch("mlp"), ` MLP; layer 0 at the bottom;${about}. Arrow keys go from token to token.`);
  tell(selected);
}
