// The drawer: what is behind one method. A native dialog keeps the focus and closes on Escape.

const EMPTY = "not recorded";
let pickedTask = "", pickedDocument = "", pickedSaving = "";

function drawer() {
  const dialog = byId("drawer");
  if (!state.open) { if (dialog.open) dialog.close(); return; }
  const method = METHODS.get(state.open), behind = part(`${state.board}-runs`);
  dialog.replaceChildren(
    element("div", { class: "bar" }, element("h2", { id: "drawer-title" }, method.label), element("button", { type: "button", id: "close", onclick: () => dialog.close() }, "close")),
    method.page ? element("p", { class: "links" }, element("a", { href: method.page }, "Idea, paper, layers and every board")) : "", facts(method.facts), ...chosen().map((table) => details(table, method.label)), ...(behind ? [...samples(behind), ...provenance(method.label, behind)] : [element("p", { class: "note" }, "Reading the records of its runs …")]));
  if (!dialog.open) dialog.showModal();
}

function facts(known) {
  return element("dl", { class: "facts" }, ...Object.entries(known).filter(([, text]) => text !== NONE).flatMap(([key, text]) => [element("dt", {}, key), element("dd", {}, text.startsWith("https://") ? element("a", { href: text, rel: "noopener noreferrer" }, text) : text)]));
}

/** What the paired tests say of a cell, in columns. */
function test(cell) {
  if (cell.rank === undefined) return [NONE, NONE, NONE, NONE, NONE, NONE];
  const behind = cell.behind === NONE ? NONE : `${cell.behind} [${cell.behind_low}, ${cell.behind_high}]`;
  return [cell.rank, behind, cell.p, cell.n, cell.over_random ?? NONE, cell.over_static ?? NONE];
}

/** Score, interval, seeds and every saving at each level. */
function details(table, label) {
  const row = table.rows.find((one) => one.method === label);
  if (!row) return "";
  const cells = row.cells.map((cell, at) => [table.levels[at], cell]).filter(([, cell]) => cell && cell.score !== NONE);
  const used = data.saved.filter((name) => cells.some(([, cell]) => saving(cell, name) !== NONE));
  const paired = cells.some(([, cell]) => cell.rank !== undefined);
  const head = ["level", "score", "low", "high", "% of dense", "marks", "seeds", ...(paired ? ["rank", "best is better by", "p (Holm)", "n", "over random skipping", "over trained static depth"] : []), ...used];
  const body = cells.map(([level, cell]) => [`${level} %`, cell.score, cell.low, cell.high, cell.kept, cell.marks || NONE, cell.seeds, ...(paired ? test(cell) : []), ...used.map((name) => saving(cell, name))]);
  return element("div", {}, element("h3", {}, table.title), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Details of ${table.title}` }, element("table", {},
    element("caption", {}, "Savings in % of the dense model, measured where the score was read off; “claimed” is what the dial says; FLOPs and ms per token are absolute"),
    element("thead", {}, element("tr", {}, ...head.map((one) => element("th", { scope: "col" }, one)))),
    element("tbody", {}, ...body.map(([level, ...rest]) => element("tr", {}, element("th", { scope: "row" }, level), ...rest.map((one) => element("td", {}, one))))))));
}

/** For one document what every method wrote, each at its measured saving nearest to the chosen one. */
function samples(behind) {
  const tasks = Object.keys(behind.samples);
  if (!tasks.length) return [];
  if (!tasks.includes(pickedTask)) pickedTask = tasks[0];
  const { targets, methods } = behind.samples[pickedTask];
  const documents = Object.keys(targets);
  if (!documents.includes(pickedDocument)) pickedDocument = documents[0] || "";
  const levels = unique(chosen().flatMap((one) => one.levels));
  if (!levels.includes(pickedSaving)) pickedSaving = levels.find((one) => Number(one) >= 15) || levels.at(-1);
  const pick = (title, options, now, set) => element("label", {}, title, element("select", { onchange: (event) => { set(event.target.value); drawer(); } },
    ...options.map((one) => element("option", { value: one, selected: one === now }, one))));
  const axis = Math.max(0, ["tokens", "core", "net"].indexOf(state.axis));
  const measured = ["tokens", "core", "net"][axis];
  const answers = Object.entries(methods).map(([label, points]) => {
    const near = points.filter((point) => point[3][pickedDocument]).sort((a, b) => Math.abs(a[axis] - pickedSaving) - Math.abs(b[axis] - pickedSaving))[0];
    if (!near) return null;
    const [text, right] = near[3][pickedDocument];
    return element("div", {}, element("p", {}, element("b", {}, label), ` · ${near[axis]} % ${measured} saved · ${right === null ? "no score" : right === 1 ? "✓ right" : right === 0 ? "✗ wrong" : `score ${right}`}`), element("pre", {}, text));
  });
  return [element("h3", {}, "What every method wrote"), element("div", { class: "controls" }, pick("task", tasks, pickedTask, (one) => { pickedTask = one; }),
    pick("document", documents, pickedDocument, (one) => { pickedDocument = one; }), pick("near % saved", levels, pickedSaving, (one) => { pickedSaving = one; })),
  element("p", { class: "note" }, "The right answer:"), element("pre", {}, targets[pickedDocument] || EMPTY), element("div", { class: "answers" }, ...answers)];
}

function provenance(label, { runs }) {
  const { spec } = METHODS.get(label);
  if (!runs.length) return [element("p", { class: "note" }, "This board has too many runs for one page; configurations and records are in their folders.")];
  return runs.flatMap((run) => {
    const records = run.records.filter((one) => one.methods.includes(spec));
    return [element("h3", {}, `Run ${run.name}`), facts(run.facts), ...run.environments.map(facts), element("p", { class: "note" }, "Command"), element("pre", {}, run.command),
      element("details", {}, element("summary", {}, "config.yaml"), element("pre", {}, run.config || (run.cut ? "left out, as this page has many runs; it is in the run's folder" : EMPTY))),
      ...run.failures.map((text) => element("p", {}, `✗ ${text}`)), ...run.warnings.map((text) => element("p", { class: "note" }, `! ${text}`)),
      ...records.map((one) => element("details", {}, element("summary", {}, `record ${one.record}`), facts(one.facts), lossChart(one.losses)))];
  });
}

byId("drawer").addEventListener("close", () => {
  const opener = state.open;
  if (!opener) return;
  change({ open: "" });
  // The dialog gave the focus back to the button that opened it; of one that a link opened there is none.
  if (document.activeElement === document.body) document.querySelector(`button.open[data-key$="${CSS.escape(` open ${opener}`)}"]`)?.focus();
});
window.addEventListener("hashchange", () => { state = fromFragment(); METHODS = methodsOf(state.board); byId("status").textContent = missed; render(); });
let begun = false;
/** The tables that the page came with are painted first; then they get their switches and charts. */
function begin() {
  if (begun) return;
  begun = true;
  controls();
  byId("status").textContent = missed;
  render();
  document.documentElement.dataset.ready = "";
}
requestAnimationFrame(() => setTimeout(begin));
setTimeout(begin, 300); // a page that nobody looks at paints nothing
