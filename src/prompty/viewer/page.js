
"use strict";
/* Draws the trace that is embedded in this page. Whatever comes from the trace becomes text nodes and nothing else:
   no markup is parsed, no address is followed, and of images only those inside the trace are shown. */

const ROW = 30, SPARE_ROWS = 12, DEEPEST_INDENT = 10, INDENT = 15, LONG = 6000, SHORT = 72;
const KINDS = { execute: "model", execute_tool: "tool", execute_provider_tool: "tool", turn: "agent", invoke: "agent", run: "agent",
  load: "stage", render: "stage", parse: "stage", prepare: "stage", process: "stage" };
const VERBS = { invoke_agent: "agent", execute_tool: "tool", chat: "model" };  // OpenTelemetry's words, and ours
const NO_PRICE = "The price list has no such model, or the extra `prices` is not installed.";
const SHORT_STAGE = 1;  // milliseconds; shorter steps of prompty's own are hidden at first
const MEDIA = ["image", "audio", "file"];
const STATUS_WORDS = { ok: "ok", failed: "failed", unfinished: "did not finish" };
// The characters that prompty.safety.visible escapes.
const HIDDEN = new RegExp("(?![\\n\\t])[\\p{C}\\p{Zl}\\p{Zp}\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180d\\u180f\\u2800\\u3164\\uffa0"
  + "\\ufe00-\\ufe0e\\u{e0100}-\\u{e01ef}]|(?<=\\P{S}|\\u2800)\\ufe0f(?!\\u20e3)", "gu");

const trace = readJson(byId("data").textContent);
const frames = trace.frames;
const state = { chosen: 0, folded: new Set(), visible: [], query: "", hits: [], isHit: new Set(), span: null, hides: true };
const opened = new Map();  // which parts of the details the reader opened or closed, by their titles
const callFrames = new Map();  // the frame of a tool call, by the id of the call

// Small helpers.
function byId(id) { return document.getElementById(id); }

/** The value of a JSON text. An integer JavaScript cannot hold would be shown with other digits than were recorded. */
function readJson(text) { return /\d{16}/.test(text) ? JSON.parse(text, exactNumbers) : JSON.parse(text); }

function exactNumbers(_, value, context) {
  const inexact = typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER;
  return inexact && context?.source && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== "") made.append(typeof child === "object" ? child : words(String(child)));
  }
  return made;
}

function button(label, action, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", (event) => { event.stopPropagation(); action(made); });
  return made;
}

/** Text with the hits of the search marked and hidden characters escaped. */
function words(text) {
  const made = document.createDocumentFragment();
  if (!state.query) { appendVisible(made, text); return made; }
  const lower = text.toLowerCase();
  // Lower case may have another length, as of İ; then places do not fit and nothing is marked.
  let from = 0, at = lower.length === text.length ? lower.indexOf(state.query) : -1;
  for (; at >= 0; at = lower.indexOf(state.query, from)) {
    appendVisible(made, text.slice(from, at));
    const hit = document.createElement("mark");
    from = at + state.query.length;
    appendVisible(hit, text.slice(at, from));
    made.append(hit);
  }
  appendVisible(made, text.slice(from));
  return made;
}

function appendVisible(parent, text) {
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    const chip = document.createElement("span");
    chip.className = "escape";
    chip.textContent = escapeCode(found[0].codePointAt(0));
    parent.append(text.slice(from, found.index), chip);
    from = found.index + found[0].length;
  }
  if (from < text.length) parent.append(text.slice(from));
}

function visible(text) { return text.replace(HIDDEN, (character) => escapeCode(character.codePointAt(0))); }

function escapeCode(code) {
  const [prefix, digits] = code < 0x100 ? ["\\x", 2] : code < 0x10000 ? ["\\u", 4] : ["\\U", 8];
  return code === 0x0d ? "\\r" : prefix + code.toString(16).padStart(digits, "0");
}

function isObject(value) { return typeof value === "object" && value !== null && !Array.isArray(value) && !JSON.isRawJSON?.(value); }
function list(value) { return Array.isArray(value) ? value : []; }
function asText(value) { return typeof value === "string" ? value : JSON.stringify(value) ?? ""; }

// Figures.
function inTime(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "";
  if (milliseconds === 0) return "0 ms";
  if (milliseconds < 1) return milliseconds.toFixed(2) + " ms";
  if (milliseconds < 999.5) return milliseconds.toFixed(0) + " ms";
  if (milliseconds < 59950) return (milliseconds / 1000).toFixed(1) + " s";
  const seconds = Math.round(milliseconds / 1000);
  return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
}

function inNumber(count) { return count === undefined ? "" : Number(count).toLocaleString("en"); }

function inTokens(usage) {
  const counted = usage.input_tokens !== undefined || usage.output_tokens !== undefined;
  return counted ? `${inNumber(usage.input_tokens ?? 0)} → ${inNumber(usage.output_tokens ?? 0)}` : "";
}

function inMoney(frame) {
  if (frame.cost === null) return "";
  const decimals = frame.cost >= 1 || frame.cost === 0 ? 2 : Math.max(2, 1 - Math.floor(Math.log10(frame.cost)));
  return (frame.costIsPartial ? "≥ $" : "$") + frame.cost.toFixed(decimals);
}

// What follows from the data.
function prepare() {
  const siblings = new Map();
  frames.forEach((frame, index) => {
    const parent = frames[frame.parent];
    frame.index = index;
    frame.kind = Object.hasOwn(KINDS, frame.name) ? KINDS[frame.name] : "own";
    frame.attributes ??= {};
    frame.offset ??= parent ? parent.offset : 0;
    frame.last = index;
    siblings.set(frame.parent, (siblings.get(frame.parent) ?? 0) + 1);
    frame.place = siblings.get(frame.parent);
    const call = frame.attributes["gen_ai.tool.call.id"];
    if (frame.kind === "tool" && call) callFrames.set(call, index);
  });
  for (const frame of frames.toReversed()) {
    frame.siblings = siblings.get(frame.parent);
    const parent = frames[frame.parent];
    if (parent) parent.last = Math.max(parent.last, frame.last);
  }
  trace.total = frames.reduce((most, frame) => Math.max(most, frame.offset + (frame.duration ?? 0)), 0) || 1;
}

function endOf(frame) { return frame.duration === null ? trace.total : frame.offset + frame.duration; }
function below(frame) { return frames.slice(frame.index + 1, frame.last + 1); }

/** Whether a step is one of prompty's own that ended well at once, and has no steps of its own. */
function isNoise(frame) {
  return frame.kind === "stage" && frame.status === "ok" && frame.last === frame.index && frame.index > 0 && frame.duration < SHORT_STAGE;
}

function countVisible() {
  state.visible = [];
  for (let index = 0; index < frames.length; index++) {
    if (!(state.hides && isNoise(frames[index]))) state.visible.push(index);
    if (state.folded.has(index)) index = frames[index].last;
  }
}

// The top.
function drawTop() {
  const root = frames[0];
  document.title = visible(root.title) + " · trace";
  byId("name").replaceChildren(titleOf(root), " ", pill(root));
  const when = root.start ? new Date(root.start).toLocaleString() : "";
  byId("origin").replaceChildren(words([when, trace.file, trace.runtime].filter(Boolean).join(" · ")));
  const failed = frames.filter((frame) => frame.status === "failed" && frame.index > 0);
  const totals = [["Duration", inTime(root.duration) || STATUS_WORDS[root.status]], ["Tokens in → out", inTokens(root.usage)],
    ["Cost", inMoney(root)], ["Model calls", inNumber(trace.modelCalls)], ["Tool calls", inNumber(trace.toolCalls)]];
  for (const [version, share] of Object.entries(trace.cachedShares)) {
    totals.push([`Cached input, ${visible(version)}`, `${(share * 100).toFixed(1)} %`]);
  }
  if (failed.length) totals.push(["Failed steps", button(inNumber(failed.length), () => choose(deepestFailure(failed)))]);
  byId("totals").replaceChildren(...totals.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", value ? {} : { title: name === "Cost" ? NO_PRICE : "" }, value || "not known"))));
}

function deepestFailure(failed) { return failed.find((frame) => !below(frame).some((inner) => inner.status === "failed")).index; }

function pill(frame) { return element("span", { class: "pill " + frame.status }, STATUS_WORDS[frame.status]); }

// The steps.
function timeWindow() {
  const frame = frames[state.span];
  const [from, to] = frame ? [frame.offset, endOf(frame)] : [0, trace.total];
  return { from, length: Math.max(to - from, 0.001) };
}

function drawTicks() {
  const { from, length } = timeWindow(), width = byId("ticks").clientWidth;
  const wanted = length * Math.min(1, 62 / width), size = 10 ** Math.floor(Math.log10(wanted));
  const step = size * [1, 2, 5, 10].find((factor) => size * factor >= wanted);
  const ticks = [];
  for (let at = 0; at < length * (1 - 40 / width); at += step) {
    const tick = element("span", {}, inTime(from + at) || "0");
    tick.style.left = (at / length) * 100 + "%";
    ticks.push(tick);
  }
  byId("ticks").replaceChildren(...ticks);
  byId("tree").style.setProperty("--tick", (step / length) * 100 + "%");
}

function drawRows() {
  const tree = byId("tree"), rows = byId("rows");
  const first = Math.max(0, Math.floor(tree.scrollTop / ROW) - SPARE_ROWS);
  const last = Math.ceil((tree.scrollTop + tree.clientHeight) / ROW) + SPARE_ROWS;
  const shown = timeWindow();
  rows.style.height = state.visible.length * ROW + "px";
  rows.replaceChildren(...state.visible.slice(first, last).map((index, at) => row(frames[index], first + at, shown)));
  tree.setAttribute("aria-activedescendant", "row-" + state.chosen);
}

function row(frame, line, shown) {
  const missed = state.query && !state.isHit.has(frame.index);
  const made = element("div", {
    id: "row-" + frame.index, role: "treeitem", class: `row ${frame.kind} ${frame.status}${missed ? " miss" : ""}`,
    "aria-level": frame.depth + 1, "aria-setsize": frame.siblings, "aria-posinset": frame.place,
    "aria-selected": String(frame.index === state.chosen),
  }, label(frame), lane(frame, shown));
  if (frame.last > frame.index) made.setAttribute("aria-expanded", String(!state.folded.has(frame.index)));
  made.style.top = line * ROW + "px";
  made.addEventListener("click", () => choose(frame.index));
  made.addEventListener("dblclick", () => fold(frame.index, !state.folded.has(frame.index)));
  return made;
}

function label(frame) {
  const hasMore = frame.last > frame.index;
  const twisty = element("span", { class: hasMore ? "twisty can" : "twisty", "aria-hidden": "true" });
  twisty.addEventListener("click", (event) => {
    event.stopPropagation();
    if (hasMore) fold(frame.index, !state.folded.has(frame.index));
  });
  const made = element("span", { class: "label" }, twisty, element("span", { class: "kind" }),
    frame.depth > DEEPEST_INDENT ? element("span", { class: "deep", title: "levels deep" }, frame.depth) : null,
    titleOf(frame), element("span", { class: "figure hint" }, hint(frame)),
    frame.status === "ok" ? null : element("span", { class: "pill " + frame.status }, STATUS_WORDS[frame.status]),
    frame.kind === "stage" ? null : element("span", { class: "figure tokens" }, inTokens(frame.usage)),
    frame.kind === "stage" ? null : element("span", { class: "figure money" }, inMoney(frame)),
    element("span", { class: "figure time" }, inTime(frame.duration)));
  made.style.paddingLeft = 6 + Math.min(frame.depth, DEEPEST_INDENT) * INDENT + "px";
  return made;
}

function titleOf(frame) {
  const space = ["agent", "model", "tool"].includes(frame.kind) ? frame.title.indexOf(" ") : -1;
  const parts = space < 0 ? [frame.title]
    : [element("span", { class: "dim" }, inWords(frame.title.slice(0, space))), " ", frame.title.slice(space + 1)];
  return element("span", { class: "title", title: visible(frame.title) }, ...parts);
}

function inWords(verb) { return Object.hasOwn(VERBS, verb) ? VERBS[verb] : verb; }

/** What tells a tool call from its neighbours: the values it was given. */
function hint(frame) {
  if (frame.kind !== "tool" || !isObject(frame.inputs) || inTokens(frame.usage)) return "";
  return Object.values(frame.inputs).map(asText).join(", ").slice(0, 80);
}

function lane(frame, { from, length }) {
  const bar = element("span", { class: "bar" });
  bar.style.left = ((frame.offset - from) / length) * 100 + "%";
  bar.style.width = ((endOf(frame) - frame.offset) / length) * 100 + "%";
  const wait = Number(frame.attributes["gen_ai.response.time_to_first_chunk"]) * 1000;
  if (wait > 0 && frame.duration > wait) {
    const waiting = element("span", { class: "wait", title: "until the first chunk: " + inTime(wait) });
    waiting.style.width = (wait / frame.duration) * 100 + "%";
    bar.append(waiting);
  }
  return element("span", { class: "lane" }, bar);
}

function fold(index, closed) {
  if (frames[index].last === index) return;
  closed ? state.folded.add(index) : state.folded.delete(index);
  if (closed && state.chosen > index && state.chosen <= frames[index].last) choose(index);
  countVisible();
  drawRows();
}

function showShortSteps(shown) {
  const count = frames.filter(isNoise).length;
  state.hides = !shown;
  byId("noise").hidden = !count;
  byId("noise").textContent = `${shown ? "Hide" : "Show"} ${inNumber(count)} short ${count === 1 ? "step" : "steps"}`;
}

function foldAll(closed) {
  state.folded = new Set(closed ? frames.filter((frame) => frame.depth > 0 && frame.last > frame.index).map((frame) => frame.index) : []);
  countVisible();
  choose(state.visible.findLast((index) => index <= state.chosen));
}

// Choosing.
function choose(index) {
  let unfolded = false;
  for (let above = frames[index].parent; above !== null; above = frames[above].parent) unfolded = state.folded.delete(above) || unfolded;
  if (state.hides && isNoise(frames[index])) { showShortSteps(true); unfolded = true; }
  if (unfolded) countVisible();
  const another = index !== state.chosen;
  state.chosen = index;
  reveal(state.visible.indexOf(index));
  drawRows();
  if (another || !byId("details").hasChildNodes()) drawDetails();
  history.replaceState(null, "", "#" + encodeURIComponent(frames[index].id));
}

function reveal(line) {
  const tree = byId("tree"), top = line * ROW;
  if (top < tree.scrollTop) tree.scrollTop = top;
  else if (top + ROW > tree.scrollTop + tree.clientHeight) tree.scrollTop = top + ROW - tree.clientHeight;
}

function move(by) {
  const line = state.visible.indexOf(state.chosen) + by;
  choose(state.visible[Math.min(Math.max(line, 0), state.visible.length - 1)]);
}

function chooseFromAddress() {
  let wanted = location.hash.slice(1);
  try { wanted = decodeURIComponent(wanted); } catch { /* not written by us: taken as it stands */ }
  const found = frames.findIndex((frame) => frame.id === wanted);
  choose(found < 0 ? 0 : found);
}

// The details.
function drawDetails() {
  const frame = frames[state.chosen], details = byId("details");
  const heading = element("header", {}, element("span", { class: "kind" }), element("h2", {}, titleOf(frame), " ", pill(frame)));
  details.className = frame.kind;
  details.replaceChildren(heading, facts(frame), ...failure(frame), ...contents(frame), ...steps(frame), ...wire(frame), ...attributes(frame));
  if (state.query) for (const hit of details.querySelectorAll("details:not([open]) mark")) openAround(hit);
  details.scrollTop = 0;
}

function openAround(node) {
  for (let part = node.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
}

function facts(frame) {
  const usage = frame.usage, wait = Number(frame.attributes["gen_ai.response.time_to_first_chunk"]);
  const known = [["Duration", inTime(frame.duration)], ["Began after", frame.index ? inTime(frame.offset) : ""], ["First chunk after", wait ? inTime(wait * 1000) : ""],
    ["Tokens in", inNumber(usage.input_tokens)], ["out", inNumber(usage.output_tokens)], ["from cache", inNumber(usage.cache_read_tokens || undefined)],
    ["to cache", inNumber(usage.cache_write_tokens || undefined)], ["thinking", inNumber(usage.reasoning_tokens || undefined)],
    ...Object.entries(usage).filter(([name]) => name.startsWith("requests.")).map(([name, count]) => [name.slice("requests.".length), inNumber(count)]),
    ["Cost", inMoney(frame) || (frame.kind === "model" && frame.status === "ok" ? "not known" : "")],
    ["Ended with", list(frame.attributes["gen_ai.response.finish_reasons"]).map(asText).join(", ")]];
  return element("dl", { class: "facts" }, known.filter(([, value]) => value).map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function failure(frame) {
  if (frame.error) {
    return [element("div", { class: "failure", role: "alert" }, element("strong", {}, frame.error.type), element("pre", {}, frame.error.message))];
  }
  return frame.status === "unfinished"
    ? [element("p", { class: "failure mild" }, "This step did not finish: it was still running when the trace was last written, or its process was killed.")] : [];
}

function part(title, open, children, note = "") {
  const summary = element("summary", {}, title, note ? element("span", { class: "dim" }, "  " + note) : null);
  const made = element("details", { class: "part" }, summary, children);
  made.open = opened.get(title) ?? open;
  summary.addEventListener("click", () => opened.set(title, !made.open));
  return made;
}

function contents(frame) {
  const inputs = frame.inputs, messages = isObject(inputs) && isConversation(inputs.messages) ? inputs.messages : null;
  const made = [];
  if (messages) {
    const answer = isMessage(frame.result) ? [frame.result] : [];
    made.push(part("Conversation", true, conversation([...messages, ...answer]), `${messages.length + answer.length} messages`));
    if (list(inputs.tools).length) made.push(part("Tools offered", false, inputs.tools.map(offer), String(inputs.tools.length)));
    const { messages: _, tools: __, ...rest } = inputs;
    if (Object.keys(rest).length) made.push(part("Other inputs", true, [value(rest)]));
  } else {
    const held = frame.kind === "agent" ? lastConversation(frame) : [];
    if (held.length) made.push(part("Conversation", true, conversation(held), `${held.length} messages`));
    if (inputs !== undefined) made.push(part(frame.kind === "tool" ? "Arguments" : "Inputs", true, [value(inputs)]));
  }
  if (frame.result !== undefined && !(messages && isMessage(frame.result))) made.push(part("Result", true, [value(frame.result)]));
  return made;
}

/** What an agent and its model have said: the messages of the agent's last model call, and the answer. */
function lastConversation(frame) {
  const last = below(frame).findLast((inner) => inner.kind === "model" && isObject(inner.inputs) && isConversation(inner.inputs.messages)
    && ownerOf(inner) === frame.index);
  return last ? [...last.inputs.messages, ...(isMessage(last.result) ? [last.result] : [])] : [];
}

function ownerOf(frame) {
  let above = frame.parent;
  while (above !== null && frames[above].kind !== "agent") above = frames[above].parent;
  return above;
}

/** Any recorded value, shown as what it is. */
function value(given) {
  if (isConversation(given)) return element("div", {}, conversation(given));
  if (isMessage(given)) return element("div", {}, conversation([given]));
  if (typeof given !== "string") return json(given);
  return parsed(given) === undefined ? long(given, (text) => element("div", { class: "block" }, element("pre", { class: "words" }, text), copier(given))) : json(parsed(given));
}

/** The list or object a text is the JSON of. */
function parsed(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    const found = readJson(text);
    JSON.stringify(found, null, 2);  // refuses what is too deep to be drawn
    return found;
  } catch { return undefined; }
}

function json(given) {
  const pretty = JSON.stringify(given, null, 2) ?? "null", flat = pretty.replace(/\n\s*/g, " ");
  const text = flat.length <= SHORT ? flat : pretty;
  return long(text, (shown) => element("div", { class: "block" }, element("pre", {}, coloured(shown)), copier(text)));
}

function coloured(text) {
  const made = [];
  let from = 0;
  for (const found of text.matchAll(/("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*/g)) {
    const kind = found[2] ? "key" : found[1] ? "string" : /^[tfn]/.test(found[0]) ? "word" : "number";
    made.push(text.slice(from, found.index), element("span", { class: kind }, found[1] ?? found[0]), found[2] ?? "");
    from = found.index + found[0].length;
  }
  return [...made, text.slice(from)];
}

/** A long text is cut until somebody asks for all of it, or searches for something in it. */
function long(text, draw, limit = LONG) {
  if (text.length <= limit || (state.query && text.toLowerCase().includes(state.query))) return draw(text);
  const more = button(`Show all ${inNumber(text.length)} characters`, () => made.replaceWith(draw(text)));
  const made = element("div", {}, draw(text.slice(0, limit / 2) + " …"), more);
  return made;
}

function copier(text) {
  return button("Copy", async (clicked) => {
    try {
      // What is copied is what is seen, so that nothing hidden reaches a terminal.
      await navigator.clipboard.writeText(visible(text));
      clicked.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(clicked.parentElement.querySelector("pre"));
      clicked.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { clicked.textContent = "Copy"; }, 1500);
  });
}

// Messages.
function isMessage(given) { return isObject(given) && typeof given.role === "string" && (typeof given.content === "string" || Array.isArray(given.content)); }
function isConversation(given) { return Array.isArray(given) && given.length > 0 && given.every(isMessage); }

function conversation(messages) {
  const calls = messages.flatMap((one) => list(one.tool_calls)).filter(isObject);
  const names = new Map(calls.map((one) => [one.id, asText(one.function?.name ?? "")]));
  return messages.map((one) => message(one, names));
}

function message(one, names) {
  const kind = ["system", "developer", "user", "assistant", "tool"].includes(one.role) ? one.role : "own";
  const role = element("div", { class: "role" }, element("b", {}, one.role),
    one.tool_call_id ? element("span", { class: "dim" }, names.get(one.tool_call_id) ?? asText(one.tool_call_id)) : null,
    one.isError ? element("span", { class: "pill failed" }, "error") : null);
  const parts = Array.isArray(one.content) ? one.content : [{ kind: "text", value: one.content }];
  return element("div", { class: "message " + (kind === "developer" ? "system" : kind) }, role,
    typeof one.reasoning === "string" && one.reasoning ? reasoning(one.reasoning) : null,
    list(one.providerCalls).filter(isObject).map(providerCall), parts.map((piece) => content(piece, kind)),
    sources(list(one.citations).filter(isObject)), list(one.tool_calls).filter(isObject).map(toolCall));
}

/** A tool that the provider ran, with what it was given. */
function providerCall(call) {
  const failed = call.status !== "completed", frame = callFrames.get(call.id);
  return element("div", { class: "call" },
    element("header", {}, element("span", {}, element("span", { class: "dim" }, "the provider ran "), element("b", {}, asText(call.tool ?? "?")),
      failed ? element("span", { class: "pill failed" }, asText(call.status ?? "?")) : null),
      frame === undefined || frame === state.chosen ? null : button("Go to step", () => choose(frame))),
    call.error ? value(asText(call.error)) : null, value(call.input ?? {}));
}

/** The sources of an answer as text: pages named them, so no address is a link. */
function sources(cited) {
  if (!cited.length) return null;
  const lines = cited.map((one) => element("tr", {}, element("td", {}, cell(one.title) || cell(one.fileId) || cell(one.kind)),
    element("td", {}, cell(one.url) || cell(one.fileId)), element("td", {}, cell(one.quote))));
  return element("details", { class: "thought", open: "" }, element("summary", {}, `Sources  ${cited.length}`),
    element("table", { class: "attributes" }, element("tbody", {}, lines)));
}

function cell(given) { return given === undefined || given === null ? "" : asText(given); }

function reasoning(thought) {
  return element("details", { class: "thought" }, element("summary", {}, "Reasoning"), element("div", { class: "plain" }, thought));
}

function content(piece, role) {
  if (!isObject(piece)) return json(piece);
  if (piece.kind !== "text" || typeof piece.value !== "string") return media(piece);
  if (role === "tool" && parsed(piece.value) !== undefined) return json(parsed(piece.value));
  return long(piece.value, (text) => element("div", { class: "plain" }, text));
}

function media(piece) {
  const given = asText(piece.value ?? ""), type = asText(piece.mediaType ?? "");
  const caption = element("figcaption", {}, [piece.kind, piece.name, type].filter(Boolean).map(asText).join(" · "));
  const source = piece.kind === "image" ? imageSource(given, type) : null;
  const words = () => long(given, (text) => element("div", { class: "plain" }, text), 300);
  if (!source) return element("figure", { class: "media" }, caption, words());
  const image = element("img", { alt: visible(asText(piece.name ?? "image in the message")) });
  image.addEventListener("error", () => image.replaceWith(words()));
  image.src = source;
  return element("figure", { class: "media" }, image, caption);
}

/** The address of an image that is inside the trace; null for every other, which would have to be fetched. */
function imageSource(given, type) {
  if (/^data:image\/[\w.+-]+;base64,[\w+/=\s]+$/i.test(given)) return given;
  return /^image\/[\w.+-]+$/i.test(type) && /^[A-Za-z0-9+/\s]+={0,2}\s*$/.test(given) ? `data:${type};base64,${given}` : null;
}

function toolCall(call) {
  const given = call.function?.arguments ?? "", frame = callFrames.get(call.id);
  return element("div", { class: "call" },
    element("header", {}, element("span", {}, element("span", { class: "dim" }, "calls "), element("b", {}, asText(call.function?.name ?? "?"))),
      frame === undefined || frame === state.chosen ? null : button("Go to step", () => choose(frame))),
    value(given));
}

function offer(tool) {
  if (!isObject(tool)) return json(tool);
  return element("details", { class: "thought" }, element("summary", {}, element("b", {}, asText(tool.name ?? "?")), "  ", asText(tool.description ?? "")),
    json(tool.parameters ?? {}));
}

// Tables, wire.
function steps(frame) {
  const calls = below(frame).filter((inner) => inner.kind === "model");
  if (!calls.length || frame.kind === "model") return [];
  const heads = ["Model call", "Time", "In", "Out", "Cached", "Thinking", "Cost"];
  const lines = calls.slice(0, 200).map((call) => [button(call.title, () => choose(call.index)), ...counts(call)]);
  const cells = (tag, line) => element("tr", {}, line.map((cell) => element(tag, {}, cell)));
  const table = element("table", { class: "figures" }, element("thead", {}, cells("th", heads)),
    element("tbody", {}, [...lines, ["All", ...counts(frame)]].map((line) => cells("td", line))));
  const rest = calls.length > 200 ? [element("p", { class: "dim" }, `and ${inNumber(calls.length - 200)} more`)] : [];
  return [part("Tokens and cost", true, [element("div", { class: "scroller" }, table), ...rest], `${inNumber(calls.length)} model calls`)];
}

function counts(frame) {
  const { input_tokens, output_tokens, cache_read_tokens, reasoning_tokens } = frame.usage;
  return [inTime(frame.duration), ...[input_tokens, output_tokens, cache_read_tokens, reasoning_tokens].map(inNumber), inMoney(frame) || "–"];
}

function wire(frame) {
  const attempts = list(frame.wire).filter(isObject);
  return attempts.map((attempt, at) => {
    const made = [];
    if (attempt.error) made.push(element("div", { class: "failure" }, element("strong", {}, "Failed"), element("pre", {}, asText(attempt.error))));
    if (attempt.curl) made.push(element("h3", {}, "The same call by hand"), element("div", { class: "sure" }, value(asText(attempt.curl))));
    made.push(element("h3", {}, "Request"), value(attempt.request ?? null), element("h3", {}, "Response"), value(attempt.response ?? "nothing came back"));
    return part(attempts.length > 1 ? `Wire, attempt ${at + 1}` : "Wire", false, made, asText(attempt.url ?? ""));
  });
}

function attributes(frame) {
  const given = { ...frame.attributes, ...(frame.signature ? { signature: frame.signature } : {}), name: frame.name, id: frame.id, start: frame.start ?? "not known" };
  const lines = Object.entries(given).map(([name, one]) => element("tr", {}, element("td", {}, name), element("td", {}, asText(one))));
  return [part("Attributes", frame.inputs === undefined && frame.result === undefined, [element("table", { class: "attributes" }, element("tbody", {}, lines))], String(lines.length))];
}

// Search.
/** All text of a frame, gathered when it is first searched. */
function searchable(frame) {
  if (frame.searchable === undefined) {
    const found = [frame.id, frame.name];
    const waiting = [frame.title, frame.signature, frame.error, frame.attributes, frame.inputs, frame.result, frame.wire];
    while (waiting.length) {
      const one = waiting.pop();
      if (MEDIA.includes(one?.kind)) waiting.push(one.name, one.mediaType);  // not the bytes: anything is found in them
      else if (isObject(one)) for (const [key, inner] of Object.entries(one)) waiting.push(key, inner);
      else if (Array.isArray(one)) for (const inner of one) waiting.push(inner);
      else if (one !== null && one !== undefined) found.push(asText(one));
    }
    frame.searchable = found.join("\n").toLowerCase();
  }
  return frame.searchable;
}

function search(text) {
  state.query = text.toLowerCase();
  state.hits = state.query ? frames.filter((frame) => searchable(frame).includes(state.query)).map((frame) => frame.index) : [];
  state.isHit = new Set(state.hits);
  drawTop();
  drawRows();
  drawDetails();
  drawHits();
}

function drawHits() {
  const at = state.hits.indexOf(state.chosen) + 1, count = state.hits.length;
  const told = count ? (at ? `${inNumber(at)} of ${inNumber(count)}` : `${inNumber(count)} ${count === 1 ? "step" : "steps"}`) : "no hit";
  byId("hits").textContent = state.query ? told : "";
  byId("hits").className = state.query && !count ? "none" : "";
}

function nextHit(by) {
  if (!state.hits.length) return;
  const forward = state.hits.find((index) => index > state.chosen) ?? state.hits[0];
  const back = state.hits.findLast((index) => index < state.chosen) ?? state.hits.at(-1);
  choose(by > 0 ? forward : back);
  drawHits();
  byId("details").querySelector("mark")?.scrollIntoView({ block: "center" });
}

// Keys and buttons.
function right() {
  if (state.folded.has(state.chosen)) fold(state.chosen, false);
  else if (frames[state.chosen].last > state.chosen) move(1);
}

function left() {
  const { index, last, parent } = frames[state.chosen];
  if (last > index && !state.folded.has(index)) fold(index, true);
  else if (parent !== null) choose(parent);
}

function stretch() {
  state.span = state.span === state.chosen || state.chosen === 0 ? null : state.chosen;
  drawTicks();
  drawRows();
}

function openDetails() {
  byId("details").focus();
  byId("details").scrollIntoView({ block: "nearest" });
}

function leave() {
  if (state.query) { byId("query").value = ""; search(""); }
  byId("tree").focus();
}

const KEYS = { j: () => move(1), k: () => move(-1), z: stretch, n: () => nextHit(1), N: () => nextHit(-1), Escape: leave,
  "/": () => byId("query").select(), "?": () => byId("help").showModal() };
const TREE_KEYS = { ArrowDown: () => move(1), ArrowUp: () => move(-1), ArrowRight: right, ArrowLeft: left, Enter: openDetails,
  Home: () => move(-frames.length), End: () => move(frames.length),
  PageDown: () => move(Math.floor(byId("tree").clientHeight / ROW) - 1), PageUp: () => move(1 - Math.floor(byId("tree").clientHeight / ROW)) };

function pressed(event) {
  const inTree = event.target === byId("tree") || event.target === document.body;
  const typing = event.target === byId("query");
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || (typing && event.key !== "Escape")) return;
  const action = KEYS[event.key] ?? (inTree ? TREE_KEYS[event.key] : undefined);
  if (!action) return;
  event.preventDefault();
  action();
  if (state.query) drawHits();
}

function switchTheme() {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
}

function listen() {
  let waiting = 0, drawing = false;
  const redraw = () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; drawTicks(); drawRows(); });
  };
  byId("tree").addEventListener("scroll", redraw, { passive: true });
  new ResizeObserver(redraw).observe(byId("tree"));
  const searchNow = () => { clearTimeout(waiting); search(byId("query").value.trim()); };
  byId("query").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(searchNow, 120); });
  byId("finder").addEventListener("submit", (event) => event.preventDefault());
  byId("query").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    if (byId("query").value.trim().toLowerCase() !== state.query) searchNow();
    nextHit(event.shiftKey ? -1 : 1);
  });
  byId("theme").addEventListener("click", switchTheme);
  byId("helper").addEventListener("click", () => byId("help").showModal());
  byId("fold").addEventListener("click", () => foldAll(true));
  byId("unfold").addEventListener("click", () => foldAll(false));
  byId("noise").addEventListener("click", () => {
    const chosen = frames[state.chosen];
    showShortSteps(state.hides);
    countVisible();
    choose(state.hides && isNoise(chosen) ? chosen.parent : chosen.index);
  });
  document.addEventListener("keydown", pressed);
  addEventListener("hashchange", chooseFromAddress);
}

prepare();
showShortSteps(false);
countVisible();
drawTop();
drawTicks();
chooseFromAddress();
listen();
byId("tree").focus({ preventScroll: true });
document.documentElement.dataset.ready = performance.now().toFixed(0);
