// The ranked table: what the page answers first.

/** A share of the dense score with its interval, as a bar from 0 to 100 % (dense). */
function strip([value, low, high]) {
  if (value === NONE) return null;
  const place = (text) => Math.max(0, Math.min(104, Number(text))) / 1.04;
  const ends = low === NONE ? [] : [shape("rect", { class: "span", x: place(low), y: 3, width: Math.max(0.5, place(high) - place(low)), height: 2 })];
  return shape("svg", { class: "strip", viewBox: "0 0 101 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    shape("rect", { class: "track", x: 0, y: 3.5, width: place(100), height: 1 }), shape("rect", { class: "end", x: place(100), y: 0, width: 0.6, height: 8 }),
    ...ends, shape("rect", { class: "value", x: Math.max(0, place(value) - 1), y: 1, width: 2, height: 6 }));
}

function mean(line) {
  const [value, low, high] = line.overall;
  if (value === NONE) return element("td", {}, element("span", { class: "na", title: "Without a score on one of the tasks there is no mean." }, "n/a"));
  return element("td", {}, element("b", {}, value), low === NONE ? null : " ", low === NONE ? null : element("small", {}, `[${low}, ${high}]`), strip(line.overall));
}

function ofTask(cell) {
  if (!cell) return element("td", {}, element("span", { class: "na" }, "n/a"));
  const [score, low, high, kept, keptLow, keptHigh, marks] = cell;
  return element("td", { title: kept === NONE ? null : `${kept} % of dense${keptLow === NONE ? "" : ` [${keptLow}, ${keptHigh}]`}` },
    element("b", {}, score), marks ? element("sup", {}, marks) : null, low === NONE ? null : " ", low === NONE ? null : element("small", {}, `[${low}, ${high}]`), strip([kept, keptLow, keptHigh]));
}

function line(one, { level, asked, settings }) {
  const timed = settings.length > 0;
  const method = METHODS.get(one.label);
  return element("tr", { class: state.pins.includes(one.label) ? "pinned" : "" },
    element("td", { class: "rank-of-it" }, one.rank || NONE),
    element("th", { scope: "row" }, key(one.label), named("ranked", one.label), ...badges(method), one.control && one.at !== level ? " " : null, one.control && one.at !== level ? element("small", {}, `at ${one.at} %`) : null),
    mean(one), ...one.cells.map(ofTask), asked ? element("td", {}, one.lost) : null, timed ? element("td", { title: one.times[1] || null }, one.times[0]) : null, element("td", { class: "state", title: method.state[1] }, method.state[0]));
}

let written = null; // the table that stands there, and what was pinned then: a filter leaves it as it is

/** The sentence, the table at the level, and what they rest on. */
function answer() {
  const about = BOARDS.get(state.board), found = standing();
  if (!about || (found && written?.found === found && written.pins === state.pins.join() && written.rows === state.rows)) return;
  written = { found, pins: state.pins.join(), rows: state.rows };
  byId("board-name").textContent = `: ${about.name}`;
  byId("meta").textContent = about.meta;
  byId("verdict").textContent = about.verdict;
  byId("answer").textContent = found ? found.said : `No table of ${about.name} has this axis, phase and level.`;
  byId("evidence").replaceChildren(...(found ? found.evidence : []).map((text) => element("li", {}, text)));
  if (!found) { byId("standing").replaceChildren(); return; }
  const header = (text, title) => element("th", { scope: "col", title }, text);
  const times = `Read off at the same point as the score; from the least to the most of these settings: ${found.settings.join("; ")}`;
  const unmeasured = found.unmeasured ? element("p", { class: "note" }, found.unmeasured) : "";
  const most = state.rows === "all" ? Infinity : MOST_ROWS;
  const part = (controls) => found.lines.filter((one) => one.control === controls).slice(0, most).map((one) => line(one, found));
  const methods = found.lines.filter((one) => !one.control).length;
  const more = methods > most ? element("p", { class: "note" }, `The first ${most} of ${methods} methods. `, element("button", { type: "button", onclick: () => change({ rows: "all" }) }, "show all")) : "";
  const left = found.left_out.length ? element("p", { class: "note" }, `Not in the mean: ${found.left_out.join(", ")}. There the dense model has not been shown to be better than the model before training and than a guess.`) : "";
  byId("standing").replaceChildren(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Methods by rank" }, element("table", { class: "ranked" },
    element("caption", {}, `Methods at ${found.level} % ${data.axes[state.axis]}${state.phase === "all" ? "" : ` of ${state.phase}`}, best first; controls below, unranked`),
    element("thead", {}, element("tr", {}, header("rank", "The ranks that tests leave open, among methods that are not controls"), header("method"),
      header("overall (base 0, dense 100)", "Mean over the tasks; 0 is the model before training or a guess, 100 the dense model"), ...found.compared.map((name, at) => header(`${found.tasks[at]}${/( \(%\)| ↓)$/.exec(name)?.[0] || ""}`, name)),
      found.asked ? header("loses with the decisions of other tokens", "Points of the dense score that are lost, mean over the tasks, and on how many of them that is certain") : null,
      found.settings.length ? header("saved time, %", times) : null, header("state"))),
    element("tbody", {}, ...part(false)), element("tbody", { class: "controls-of-it" }, ...part(true)))), more, unmeasured, left);
}
