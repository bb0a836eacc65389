"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const MARKS = { passed: "✓", failed: "✗", error: "!", skipped: "-" };
const WORDS = { passed: "passed", failed: "failed", error: "could not run", skipped: "skipped" };
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
function columnOf(result) { return [result.variant, result.model].filter(Boolean).join(", ") || "the file's model"; }

const columns = [...new Set(data.results.map(columnOf))];
const rows = new Map();
for (const result of data.results) {
  result.searched = `${result.suite} ${result.case} ${columnOf(result)} ${result.reasons.join(" ")}`.toLowerCase();
  const key = JSON.stringify([result.suite, result.case]);
  if (!rows.has(key)) rows.set(key, { suite: result.suite, name: result.case, cells: new Map() });
  rows.get(key).cells.set(columnOf(result), result);
}

function showTotals() {
  const totals = document.getElementById("totals");
  const add = (name, value, kind) => totals.append(element("div", { class: kind }, element("dt", {}, name), element("dd", {}, value)));
  for (const status of Object.keys(MARKS)) if (data.summary[status]) add(WORDS[status], String(data.summary[status]), status);
  const cost = data.results.reduce((sum, result) => sum + (result.cost || 0), 0);
  if (cost) add("cost", money(cost));
  const seconds = data.results.reduce((sum, result) => sum + (result.seconds || 0), 0);
  if (seconds) add("model time", time(seconds));
  document.getElementById("notes").textContent = data.notes.join("\n");
}

function matches(result, words, show) {
  if (show === "bad" && result.status === "passed") return false;
  if (show === "flipped" && !result.flip) return false;
  return words.every((word) => result.searched.includes(word));
}

let chosen = null;

function cellOf(result) {
  const repeated = result.runs.length > 1 || result.needed > 1 ? `${result.passes}/${result.runs.length}` : null;
  const cell = element("button", { type: "button", class: `cell ${result.status}`, "aria-pressed": "false", "aria-label": `${result.case}: ${WORDS[result.status]}` },
    MARKS[result.status],
    repeated ? element("span", { class: "small" }, repeated) : null,
    result.cost ? element("span", { class: "small" }, money(result.cost)) : null,
    result.seconds ? element("span", { class: "small" }, time(result.seconds)) : null,
    result.flip ? element("span", { class: `flip ${result.flip === "worse" ? "failed" : "passed"}` }, result.flip) : null);
  cell.addEventListener("click", () => choose(cell, result));
  return cell;
}

function choose(cell, result) {
  if (chosen) chosen.setAttribute("aria-pressed", "false");
  chosen = cell;
  cell.setAttribute("aria-pressed", "true");
  showDetails(result);
}

function showMatrix() {
  const words = document.getElementById("query").value.toLowerCase().split(/\s+/).filter(Boolean);
  const show = document.getElementById("show").value;
  const table = element("table", {}, element("thead", {}, element("tr", {}, element("th", {}, "case"), ...columns.map((name) => element("th", {}, name)))));
  let suite = null, count = 0, body = null;
  for (const row of rows.values()) {
    const cells = columns.map((name) => row.cells.get(name)).map((result) => (result && matches(result, words, show) ? result : null));
    if (!cells.some(Boolean)) continue;
    if (!body || count % ROWS_PER_BODY === 0) table.append((body = element("tbody", {})));
    if (row.suite !== suite) {
      suite = row.suite;
      body.append(element("tr", { class: "suite" }, element("td", { colspan: String(columns.length + 1) }, suite)));
    }
    body.append(element("tr", {}, element("td", { class: "name" }, row.name), ...cells.map((result) => element("td", {}, result ? cellOf(result) : null))));
    count += 1;
  }
  if (!count) table.append(element("tbody", {}, element("tr", {}, element("td", { class: "dim" }, "No case matches."))));
  document.getElementById("matrix").replaceChildren(table);
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

function showDetails(result) {
  const parts = [element("h2", {}, `${result.suite}: ${result.case}`), element("p", { class: result.status }, `${MARKS[result.status]} ${WORDS[result.status]}`, element("span", { class: "small" }, columnOf(result)))];
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
  const details = document.getElementById("details");
  details.replaceChildren(...parts);
  details.scrollTop = 0;
}

document.getElementById("query").addEventListener("input", showMatrix);
document.getElementById("show").addEventListener("change", showMatrix);
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
showTotals();
showMatrix();
const first = data.results.findIndex((result) => result.status === "failed" || result.status === "error");
if (first >= 0) {
  const cell = document.querySelector(".cell.failed, .cell.error");
  if (cell) cell.click();
}
document.documentElement.dataset.ready = "";
