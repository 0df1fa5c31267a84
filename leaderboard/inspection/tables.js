// Tables below the text: skip rates by kind of token and layer, agreement, densities of scores.

const bar = (share, kind) => {
  const picture = drawn("svg", { class: "bar", viewBox: "0 0 100 7", preserveAspectRatio: "none", "aria-hidden": "true" }, drawn("rect", { class: "track", width: 100, height: 7 }));
  picture.append(drawn("rect", { class: kind, width: (100 * share).toFixed(1), height: 7 }));
  return picture;
};
const rate = (share, branch) => element("td", {}, percent(share), bar(share, branch ? "mlp" : "attention"));
/** A score with three digits. */
const short = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3))));
const none = () => element("td", {}, element("span", { class: "na" }, "n/a"));
const header = (text, properties = {}) => element("th", { scope: "col", ...properties }, text);
const scrolled = (name, table) => element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${name}, table` }, table);

/** A table of skip rates in %: rows by name, of each method attention and MLP. */
function rates(title, corner, caption, rows, cellsOf, countOf) {
  const there = data.methods.filter((one) => one.points[state.saving]);
  const head = [element("tr", {}, element("td", {}), ...(countOf ? [element("td", {})] : []), ...there.map((one) => header(one.spec, { scope: "colgroup", colspan: 2 }))),
    element("tr", {}, header(corner), ...(countOf ? [header("tokens")] : []), ...there.flatMap(() => BRANCHES.map((name) => header(name))))];
  const body = rows.map((row) => element("tr", {}, element("th", { scope: "row" }, row), ...(countOf ? [element("td", {}, String(countOf(row)))] : []),
    ...there.flatMap((one) => { const cells = cellsOf(one.points[state.saving], row); return cells ? [rate(cells[0], 0), rate(cells[1], 1)] : [none(), none()]; })));
  return element("section", { class: "task", "aria-label": title }, element("h2", {}, title),
    scrolled(title, element("table", { class: "rates" }, element("caption", {}, caption), element("thead", {}, ...head), element("tbody", {}, ...body))));
}

function agreements() {
  const found = data.agreement[state.saving] || [];
  const number = (value) => (value === null ? none() : element("td", {}, value.toFixed(2)));
  const body = found.map((one) => element("tr", {}, element("th", { scope: "row" }, `${one.one} and ${one.other === null ? "its own oracle" : one.other}`), element("td", {}, percent(one.alike)), number(one.kappa)));
  const exits = data.methods.map((one) => `${one.spec} ${one.exit.toFixed(2)}`).join(", ");
  return element("section", { class: "task", "aria-label": "Agreement" }, element("h2", {}, "Agreement"),
    scrolled("Agreement", element("table", { class: "rates" }, element("caption", {}, "How alike two methods decide"), element("thead", {}, element("tr", {}, header("who"), header("alike, %"), header("kappa"))), element("tbody", {}, ...body))),
    element("p", { class: "note" }, `Layers that a token needs in the mean before its prediction stays: ${exits} of ${LAYERS}.`));
}

/** One hill for each site of a method with scores; the same numbers stand in a table. */
function densities(one) {
  const width = 250, step = Math.max(12, Math.min(30, 420 / LAYERS)), left = 52, top = 18 + 0.4 * step, height = LAYERS * step + top + 28;
  const picture = drawn("svg", { class: "ridges", viewBox: `0 0 ${2 * width + left + 20} ${height}`, role: "img", "aria-label": `Densities of the scores of ${one.spec} by layer; the table below has their medians` });
  for (const branch of [0, 1]) {
    const known = one.scores.sites.filter((_, site) => (site & 1) === branch).filter((site) => site.range);
    if (!known.length) continue;
    const low = Math.min(...known.map((site) => site.range[0])), high = Math.max(...known.map((site) => site.range[1]));
    const x0 = left + branch * (width + 20), x = (value) => x0 + width * (value - low) / Math.max(high - low, 1e-12);
    picture.append(drawn("text", { x: x0, y: 12 }, `${BRANCHES[branch]}: score`));
    for (let layer = 0; layer < LAYERS; layer++) {
      const site = one.scores.sites[2 * layer + branch], base = top + (LAYERS - layer) * step;
      if (!branch) picture.append(drawn("text", { x: left - 8, y: base, "text-anchor": "end", class: "tick" }, `layer ${layer}`));
      picture.append(drawn("path", { class: "grid", d: `M${x0},${base}h${width}` }));
      if (!site.density) { if (site.range) picture.append(drawn("path", { class: branch ? "hill mlp" : "hill attention", d: `M${x(site.range[0]).toFixed(1)},${base}v-${(0.9 * step).toFixed(1)}` })); continue; }
      const [from, to] = site.range;
      const points = site.density.map((value, at) => `${x(from + (to - from) * at / (site.density.length - 1)).toFixed(1)},${(base - 1.3 * step * value).toFixed(1)}`);
      picture.append(drawn("path", { class: branch ? "hill mlp" : "hill attention", d: `M${x(from).toFixed(1)},${base}L${points.join("L")}L${x(to).toFixed(1)},${base}z` }));
    }
    for (const [value, anchor] of [[low, "start"], [high, "end"]]) picture.append(drawn("text", { x: x(value), y: height - 8, "text-anchor": anchor, class: "tick" }, short(value)));
  }
  const spread = (site) => (site.spread ? `${short(site.spread.median)} [${short(site.spread.low)}, ${short(site.spread.high)}]` : "n/a");
  const body = Array.from({ length: LAYERS }, (_, layer) => element("tr", {}, element("th", { scope: "row" }, `layer ${layer}`), element("td", {}, spread(one.scores.sites[2 * layer])), element("td", {}, spread(one.scores.sites[2 * layer + 1]))));
  const title = `Scores of ${one.spec}`;
  const table = element("table", { class: "rates" }, element("caption", {}, "Median [5th, 95th percentile]"), element("thead", {}, element("tr", {}, header("layer"), ...BRANCHES.map((name) => header(name)))), element("tbody", {}, ...body));
  const kinds = BRANCHES.map((name, branch) => scrolled(`${title}, ${name}`, element("table", { class: "rates" }, element("caption", {}, `Mean score, ${name}, by kind of token and layer`),
    element("thead", {}, element("tr", {}, header("kind of token"), ...Array.from({ length: LAYERS }, (_, layer) => header(String(layer))))),
    element("tbody", {}, ...Object.entries(one.scores.by_kind).map(([kind, layers]) => element("tr", {}, element("th", { scope: "row" }, kind), ...layers.map((pair) => (pair[branch] === null ? none() : element("td", {}, short(pair[branch]))))))))));
  return element("div", {}, element("figure", {}, element("figcaption", {}, title), picture), element("details", {}, element("summary", {}, `${title} as numbers`), scrolled(title, table), ...kinds));
}

function scores() {
  const there = data.methods.filter((one) => one.scores);
  if (!there.length) return "";
  return element("section", { class: "task", "aria-label": "Scores" }, element("h2", {}, "Scores by layer"), element("p", { class: "note" }, "What a method ranks tokens by, with nothing skipped: each hill is a Gaussian kernel density of all tokens at a site, as high as the others. Methods that leave by confidence ask only some tokens and have no such score."),
    element("div", { class: "pair" }, ...there.map(densities)));
}

function drawTables() {
  const first = data.methods.map((one) => one.points[state.saving]).find(Boolean);
  if (!first) { byId("tables").replaceChildren(); return; }
  const open = [...document.querySelectorAll("#tables details")].map((one) => one.open);
  const caption = `Skipped at ${percent(Number(state.saving))} % asked, in % of the token-branches of the row`;
  byId("tables").replaceChildren(
    rates("By kind of token", "kind of token", caption, Object.keys(first.by_kind), (one, row) => one.by_kind[row].slice(1), (row) => first.by_kind[row][0]),
    rates("By layer", "layer", caption, Array.from({ length: LAYERS }, (_, layer) => `layer ${layer}`), (one, row) => one.by_layer[Number(row.slice(6))]),
    agreements(), scores());
  [...document.querySelectorAll("#tables details")].forEach((one, at) => { one.open = open[at] ?? false; });
}
