"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const MARKS = { passed: "✓", failed: "✗", error: "!", skipped: "-" };
const WORDS = { worse: "worse", failed: "failed", error: "could not run", accepted: "failed as before", better: "better", passed: "passed", skipped: "skipped" };
const ROWS_PER_BODY = 100;

// Text of results is only ever set as text, never as markup.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function money(cost) { return cost === null ? "" : `$${cost.toFixed(4)}`; }
function time(seconds) { return seconds === null ? "" : `${seconds.toFixed(1)} s`; }
function columnOf(result) { return [result.variant, result.model].filter(Boolean).join(", ") || result.own_model || "each file's model"; }

// One table for each test file, with the columns that its cases use. The data has the worst files and cases first.
const suites = new Map();
for (const result of data.results) {
  const column = columnOf(result);
  result.searched = `${result.suite} ${result.case} ${column} ${result.reasons.join(" ")}`.toLowerCase();
  if (!suites.has(result.suite)) suites.set(result.suite, { name: result.suite, columns: new Map(), rows: new Map() });
  const suite = suites.get(result.suite);
  if (!suite.columns.has(column)) suite.columns.set(column, []);
  suite.columns.get(column).push(result);
  if (!suite.rows.has(result.case)) suite.rows.set(result.case, { name: result.case, cells: new Map() });
  suite.rows.get(result.case).cells.set(column, result);
}
const sum = (results, name) => results.reduce((total, result) => total + (result[name] || 0), 0);

function showTotals() {
  document.getElementById("summary").textContent = data.summary;
  document.getElementById("notes").textContent = data.notes.join("\n");
  document.getElementById("origin").textContent = data.origin;
  const totals = document.getElementById("totals");
  const add = (name, value) => totals.append(element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  if (data.totals.length > 1) for (const one of data.totals) add(one.name, one.text);
  const cost = sum(data.results, "cost"), seconds = sum(data.results, "seconds");
  if (cost) add("cost", money(cost));
  if (seconds) add("model time", time(seconds));
}

function matches(result, words, show) {
  if (show === "bad" && ["passed", "better", "accepted", "skipped"].includes(result.standing)) return false;
  if (show === "flipped" && !result.flip) return false;
  if (show === "flaky" && !isFlaky(result)) return false;
  return words.every((word) => result.searched.includes(word));
}

function isFlaky(result) { return result.passes > 0 && result.passes < result.runs.length; }
function answersOf(result) { return [...new Set(result.runs.filter((run) => run.answer !== null).map((run) => write(run.answer)))]; }

let chosen = null;

function cellOf(result, withAnswers) {
  const repeated = result.runs.length > 1 || result.needed > 1 ? `${result.passes} of ${result.runs.length}` : null;
  const [answer] = withAnswers ? answersOf(result) : [];
  const cell = element("button", { type: "button", class: `cell ${result.accepted ? "skipped" : result.status}`, "aria-pressed": "false", "aria-label": `${result.case}: ${WORDS[result.standing]}` },
    MARKS[result.status],
    repeated ? element("span", { class: isFlaky(result) ? "small flaky" : "small" }, repeated) : null,
    result.flip ? element("span", { class: `flip ${result.flip === "worse" ? "failed" : "passed"}` }, result.flip) : null,
    answer ? element("span", { class: "answer" }, answer) : null);
  cell.addEventListener("click", () => choose(cell, () => showDetails(result)));
  return cell;
}

function choose(cell, show) {
  if (chosen) chosen.setAttribute("aria-pressed", "false");
  chosen = cell;
  cell.setAttribute("aria-pressed", "true");
  const details = document.getElementById("details");
  details.replaceChildren(...show());
  details.scrollTop = 0;
}

function nameOf(row, results) {
  const name = element("button", { type: "button", class: "case", "aria-pressed": "false", title: "Show the answers side by side" }, row.name);
  name.addEventListener("click", () => choose(name, () => showAnswers(row, results)));
  return name;
}

function headOf(suite, columns) {
  const results = [...suite.columns.values()].flat();
  const counts = ["worse", "failed", "error", "accepted"].map((kind) => [results.filter((result) => result.standing === kind).length, kind]).filter(([count]) => count);
  const first = element("th", { scope: "col" }, element("span", { class: "suite" }, suite.name),
    element("span", { class: counts.some(([, kind]) => kind !== "accepted") ? "total failed" : "total" }, counts.map(([count, kind]) => `${count} ${WORDS[kind]}`).join(", ")));
  return element("thead", {}, element("tr", {}, first, ...columns.map((name) => {
    const own = suite.columns.get(name), cost = sum(own, "cost"), seconds = sum(own, "seconds");
    const facts = [`${own.filter((result) => result.status === "passed").length} of ${own.length} passed`, cost ? money(cost) : "", seconds ? time(seconds) : ""].filter(Boolean);
    return element("th", { scope: "col" }, name, element("span", { class: "total" }, facts.join(" · ")));
  })));
}

function tableOf(suite, words, show, withAnswers) {
  const columns = [...suite.columns.keys()];
  const table = element("table", {}, headOf(suite, columns));
  let count = 0, body = null;
  for (const row of suite.rows.values()) {
    const all = columns.map((name) => row.cells.get(name));
    const cells = all.map((result) => (result && matches(result, words, show) ? result : null));
    if (!cells.some(Boolean)) continue;
    if (count % ROWS_PER_BODY === 0) table.append((body = element("tbody", {})));
    body.append(element("tr", {}, element("td", { class: "name" }, nameOf(row, all.filter(Boolean))), ...cells.map((result) => element("td", {}, result ? cellOf(result, withAnswers) : null))));
    count += 1;
  }
  return count ? table : null;
}

function showMatrix() {
  const words = document.getElementById("query").value.toLowerCase().split(/\s+/).filter(Boolean);
  const show = document.getElementById("show").value, withAnswers = document.getElementById("answers").checked;
  const tables = [...suites.values()].map((suite) => tableOf(suite, words, show, withAnswers)).filter(Boolean);
  document.getElementById("matrix").replaceChildren(...(tables.length ? tables : [element("p", { class: "dim" }, "No case matches.")]));
}

function write(value) { return typeof value === "string" ? value : JSON.stringify(value, null, 2); }
function describeMessages(messages) { return messages.map((message) => `${message.role}:\n${write(message.content)}`).join("\n\n"); }

// Lines that differ: those of the longest common subsequence stay, for texts that are not too long.
function diffOf(before, now) {
  const left = before.split("\n"), right = now.split("\n");
  if (left.length * right.length > 250000) return [...left.map((line) => ["minus", line]), ...right.map((line) => ["plus", line])];
  const table = Array.from({ length: left.length + 1 }, () => new Uint32Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--) for (let j = right.length - 1; j >= 0; j--) {
    table[i][j] = left[i] === right[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  }
  const lines = [];
  let i = 0, j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) { lines.push(["same", left[i]]); i++; j++; }
    else if (j >= right.length || (i < left.length && table[i + 1][j] >= table[i][j + 1])) lines.push(["minus", left[i++]]);
    else lines.push(["plus", right[j++]]);
  }
  return lines;
}

function showText(title, now, before) {
  if (before === undefined || before === null || before === now) return [element("h3", {}, title), element("pre", {}, now)];
  const block = element("pre", {});
  for (const [kind, line] of diffOf(before, now)) {
    const sign = { same: "  ", minus: "- ", plus: "+ " }[kind];
    block.append(kind === "same" ? `${sign}${line}\n` : element("span", { class: kind }, `${sign}${line}`));
  }
  return [element("h3", {}, `${title}, compared with ${data.reference}`), block];
}

// The answers of all models and variants to one case.
function showAnswers(row, results) {
  const answers = results.map((result) => element("section", {},
    element("h3", { class: result.accepted ? "skipped" : result.status }, `${MARKS[result.status]} `, columnOf(result)),
    ...(result.reasons.length ? [element("ul", {}, ...result.reasons.map((reason) => element("li", {}, reason)))] : []),
    ...answersOf(result).map((answer) => element("pre", {}, answer))));
  return [element("h2", {}, `${results[0].suite}: ${row.name}`), element("div", { class: "answers" }, ...answers)];
}

function showDetails(result) {
  const words = [WORDS[result.standing], columnOf(result)];
  if (result.runs.length > 1) words.splice(1, 0, `${result.passes} of ${result.runs.length} runs passed, ${result.needed} needed`);
  const parts = [element("h2", {}, `${result.suite}: ${result.case}`), element("p", { class: result.accepted ? "skipped" : result.status }, `${MARKS[result.status]} ${words[0]}`, ...words.slice(1).map((word) => element("span", { class: "small" }, word)))];
  if (result.reasons.length) parts.push(element("ul", {}, ...result.reasons.map((reason) => element("li", {}, reason))));
  const before = result.before || {};
  result.runs.forEach((run, position) => {
    const earlier = position === 0 ? before : {};
    if (result.runs.length > 1) parts.push(element("h3", {}, `Run ${run.number}`));
    const facts = [run.rounds ? `${run.rounds} ${run.rounds === 1 ? "round" : "rounds"}` : "", run.input_tokens ? `${run.input_tokens} + ${run.output_tokens} tokens` : "", money(run.cost), time(run.seconds)].filter(Boolean);
    if (run.trace) facts.push(element("a", { href: run.trace }, "trace"));
    if (facts.length) parts.push(element("p", { class: "dim" }, ...facts.flatMap((fact, at) => (at ? [" · ", fact] : [fact]))));
    if (run.answer !== null) parts.push(...showText("Answer", write(run.answer), earlier.answer === undefined || earlier.answer === null ? null : write(earlier.answer)));
    if (run.calls.length) parts.push(...showText("Tool calls", run.calls.map((call) => `${call.name} ${write(call.arguments)}`).join("\n")));
    if (position === 0 && run.messages.length) parts.push(...showText("Messages", describeMessages(run.messages), earlier.messages && earlier.messages.length ? describeMessages(earlier.messages) : null));
  });
  return parts;
}

document.getElementById("query").addEventListener("input", showMatrix);
document.getElementById("show").addEventListener("change", showMatrix);
document.getElementById("answers").addEventListener("change", showMatrix);
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
showTotals();
showMatrix();
// Start with the first result that got worse, or else with the first that failed.
const worst = document.querySelector(".cell .flip.failed") || document.querySelector(".cell.failed, .cell.error");
if (worst) worst.closest(".cell").click();
document.documentElement.dataset.ready = "";
