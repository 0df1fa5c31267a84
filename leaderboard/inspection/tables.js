// Tables below the text: skip rates by kind of token and layer.

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

/** A table of skip rates in %: named rows, with columns for attention and MLP of each method. */
function rates(title, corner, caption, rows, cellsOf, countOf) {
  const there = data.methods.filter((one) => one.points[state.saving]);
  const head = [element("tr", {}, element("td", {}), ...(countOf ? [element("td", {})] : []), ...there.map((one) => header(one.spec, { scope: "colgroup", colspan: 2 }))),
    element("tr", {}, header(corner), ...(countOf ? [header("tokens")] : []), ...there.flatMap(() => BRANCHES.map((name) => header(name))))];
  const body = rows.map((row) => element("tr", {}, element("th", { scope: "row" }, row), ...(countOf ? [element("td", {}, String(countOf(row)))] : []),
    ...there.flatMap((one) => { const cells = cellsOf(one.points[state.saving], row); return cells ? [rate(cells[0], 0), rate(cells[1], 1)] : [none(), none()]; })));
  return element("section", { class: "task", "aria-label": title }, element("h2", {}, title),
    scrolled(title, element("table", { class: "rates" }, element("caption", {}, caption), element("thead", {}, ...head), element("tbody", {}, ...body))));
}

function drawTables() {
  const first = data.methods.map((one) => one.points[state.saving]).find(Boolean);
  if (!first) { byId("tables").replaceChildren(); return; }
  const caption = `Skipped at ${percent(Number(state.saving))} % asked, in % of the token-branches of the row`;
  byId("tables").replaceChildren(
    rates("By kind of token", "kind of token", caption, Object.keys(first.by_kind), (one, row) => one.by_kind[row].slice(1), (row) => first.by_kind[row][0]),
    rates("By layer", "layer", caption, Array.from({ length: LAYERS }, (_, layer) => `layer ${layer}`), (one, row) => one.by_layer[Number(row.slice(6))]));
}
