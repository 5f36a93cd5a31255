
"use strict";
// Reads the exporter's metrics, keeps what it needs of the last hour, and draws it. Whatever an engine says becomes text,
// never markup: elements are made by make(), and the page's policy refuses innerHTML.

const POLL = 5e3; // milliseconds from the end of one poll to the next: each has the exporter read every engine
const JUDGE = 30e3; // milliseconds from the end of one verdict to the next
const KEEP = 60 * 60e3; // milliseconds of history: at most 720 polls
const LATELY = 60e3; // milliseconds over which a quantile is taken

// The metrics that are read.
const M = {
  up: "llm_engine_up", info: "llm_engine_info", running: "llm_engine_requests_running", waiting: "llm_engine_requests_waiting",
  kv: "llm_engine_kv_cache_usage_ratio", ttft: "llm_engine_time_to_first_token_seconds_bucket", itl: "llm_engine_inter_token_latency_seconds_bucket",
  sleeping: "llm_engine_sleeping", runsOn: "llm_engine_gpu_info", started: "llm_engine_start_time_seconds", changed: "llm_engine_config_changed_timestamp_seconds",
  nvmlUp: "llm_gpu_nvml_up", sourceUp: "llm_gpu_source_up", missing: "llm_gpu_missing", gpuUp: "llm_gpu_up", gpuInfo: "llm_gpu_info",
  clock: "llm_gpu_clock_hertz", clockMax: "llm_gpu_clock_max_hertz", throttle: "llm_gpu_clock_event_active",
  bandwidth: "llm_gpu_memory_bandwidth_utilization_ratio", busy: "llm_gpu_memory_busy_ratio", temperature: "llm_gpu_temperature_celsius",
  margin: "llm_gpu_temperature_margin_celsius", power: "llm_gpu_power_watts", ecc: "llm_gpu_ecc_errors_total",
  xidTime: "llm_gpu_xid_last_timestamp_seconds", xidInfo: "llm_gpu_xid_info", recovery: "llm_gpu_recovery_action_info",
  health: "llm_gpu_health", condition: "llm_gpu_health_condition_timestamp_seconds",
  remapFailure: "llm_gpu_row_remap_failure", remapPending: "llm_gpu_row_remap_pending", unrepairable: "llm_gpu_memory_unrepairable",
  sram: "llm_gpu_sram_ecc_threshold_exceeded",
  events: "llm_slo_events_total", badEvents: "llm_slo_bad_events_total", objective: "llm_slo_objective_ratio", period: "llm_slo_period_seconds",
  sloInfo: "llm_slo_info", maintenance: "llm_slo_maintenance",
  probes: "llm_probe_requests_total", probeTTFT: "llm_probe_time_to_first_token_seconds_bucket", probeSkipped: "llm_probe_skipped_total",
  discovery: "llm_exporter_discovery_up", reloaded: "llm_exporter_config_last_reload_successful",
};
const wanted = new Set(Object.values(M));

// Why clocks are lowered, in words; harm marks what makes a model slow, and the runbook about it.
const THROTTLES = {
  hw_slowdown: {says: "slowed down by its hardware", harm: "LLMGPUSlowed"},
  hw_thermal_slowdown: {says: "too hot: slowed down by its hardware", harm: "LLMGPUSlowed"},
  sw_thermal_slowdown: {says: "too hot: slowed down by the driver", harm: "LLMGPUSlowed"},
  hw_power_brake_slowdown: {says: "power brake: the rack or a power supply slows it down", harm: "LLMGPUSlowed"},
  sw_power_cap: {says: "at its power limit"},
  applications_clocks_setting: {says: "clocks set by hand"}, display_clock_setting: {says: "clocks set for a display"},
  sync_boost: {says: "clocks follow another GPU"}, board_limit: {says: "at a limit of the board"},
};

// GPU states that are 1 when something is wrong.
const FAULTS = [
  {m: M.remapFailure, says: "a memory row cannot be replaced: replace the board", runbook: "LLMGPUFailed"},
  {m: M.unrepairable, says: "its memory cannot be repaired: replace the board", runbook: "LLMGPUFailed"},
  {m: M.sram, says: "too many errors in its SRAM: replace the board", runbook: "LLMGPUFailed"},
  {m: M.remapPending, says: "a memory row waits for a GPU reset to be replaced", runbook: "LLMGPUNeedsService", mild: true},
];

// Verdicts by number, as in docs/health.md.
const VERDICTS = ["healthy", "degraded", "drain", "reset", "replace"];

const $ = id => document.getElementById(id);
const settings = $("map").dataset;
const opened = Date.now();
// An address without the user and password that the page's own may have: fetch refuses those.
const address = path => new URL(path, location.origin + location.pathname);

// make returns an element with attributes and children; strings become text.
function make(tag, attributes = {}, ...children) {
  const e = /^(svg|path)$/.test(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// say changes a text only if it differs, so that nothing is announced or deselected in vain.
function say(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// float reads a number as the text format writes it.
const float = s => Number(s.replace("Inf", "Infinity"));

// parse reads the text format: the wanted samples by name, each {l: labels, v: value}.
function parse(text) {
  const page = new Map([...wanted].map(name => [name, []]));
  for (const line of text.split("\n")) {
    const samples = page.get(line.slice(0, line.search(/[{ ]/)));
    const parts = samples && /^\w+(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts) continue;
    const l = {};
    for (const [, name, value] of (parts[1] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) l[name] = value.replace(/\\(.)/g, (_, c) => c === "n" ? "\n" : c);
    samples.push({l, v: float(parts[2])});
  }
  return page;
}

// keyed returns the value of a key, made by make if there is none.
function keyed(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

const sum = values => values.length ? values.reduce((a, b) => a + b, 0) : null;
const max = values => values.length ? Math.max(...values) : null;
const join = (...words) => words.filter(Boolean).join(" ");

const number = v => v === null ? "–" : v >= 1e4 ? (v / 1e3).toFixed(0) + "k" : String(Math.round(v));
const percent = v => v === null ? "–" : (100 * v).toFixed(v < 0.1 && v > 0 ? 1 : 0) + " %";
const seconds = v => v === null ? "–" : v < 1 ? (1e3 * v).toPrecision(v < 0.01 ? 2 : 3).replace(/\.0+$/, "") + " ms" : v < 100 ? v.toPrecision(2) + " s" : Math.round(v) + " s";
const lasting = s => s < 90 ? Math.round(s) + " s" : s < 5400 ? Math.round(s / 60) + " min" : s < 48 * 3600 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";
const times = v => (v < 10 ? v.toFixed(1) : v.toFixed(0)) + "x";
const clock = t => new Date(t).toLocaleTimeString();

// The numbers of an engine. A null means that the engine does not report it, or not lately.
const NUMBERS = [
  {of: "running", label: "running", title: "Requests in the running batch.", show: number},
  {of: "waiting", label: "waiting", title: "Requests that wait in the engine to be scheduled.", show: number},
  {of: "kv", label: "KV cache", title: "Share of the KV cache that running requests use. When it is full, other requests wait.", show: percent, top: 1},
  {of: "ttft", label: "first token, p95", title: "Time from a request to its first token (TTFT). 95% of the requests in the last minute were faster.", show: seconds},
  {of: "itl", label: "next token, p95", title: "Time between two tokens (ITL). 95% of these times in the last minute were shorter.", show: seconds},
];

// Everything that outlives a poll.
const engines = new Map(), gpus = new Map(); // cards by key
let made = 0; // cards so far
const last = new Map(); // counters of objectives as of the last poll, those of memory errors as of the first
let spent = []; // what those of objectives gained: {t, key, of: events or bad, n}

// place returns what identifies an engine's page.
const place = l => [l.namespace, l.pod, l.container, l.server].map(v => v || "").join("\n");

// quantile returns the q-quantile of what was counted between two snapshots of a histogram's buckets, as PromQL
// does; null if nothing was.
function quantile(q, before, after) {
  const buckets = [...after].map(([le, n]) => ({le, n: n - (before.get(le) || 0)})).sort((a, b) => a.le - b.le);
  const total = buckets.length ? buckets.at(-1).n : 0;
  if (!(total > 0)) return null;
  const i = buckets.findIndex(b => b.n >= q * total);
  const low = i ? buckets[i - 1] : {le: 0, n: 0};
  if (buckets[i].le === Infinity) return low.le;
  return low.le + (buckets[i].le - low.le) * (q * total - low.n) / (buckets[i].n - low.n);
}

// histogram sums the buckets of samples.
function histogram(samples) {
  const buckets = new Map();
  for (const {l, v} of samples) buckets.set(float(l.le), (buckets.get(float(l.le)) || 0) + v);
  return buckets;
}

// spark draws values over the time that is kept; a gap in the polls is a gap in the line.
function spark(path, points, of, top, now) {
  top = top || Math.max(...points.map(p => p[of] || 0)) || 1;
  const from = Math.max(opened, now - KEEP), span = Math.max(now - from, 60e3);
  let d = "", before = -Infinity;
  for (const p of points) {
    if (p[of] === null) continue;
    d += (p.t - before > 4 * POLL ? "M" : "L") + (100 * (p.t - from) / span).toFixed(1) + " " + (23 - 22 * p[of] / top).toFixed(1);
    before = p.t;
  }
  path.setAttribute("d", d);
}

// card returns the card of a key in a column, with the parts that a poll changes.
function card(cards, column, id, key) {
  return keyed(cards, key, () => {
    const c = {parts: new Map()};
    c.name = make("h3");
    c.state = make("p", {class: "state"});
    c.about = make("p", {class: "quiet about"});
    c.where = make("p", {class: "about"});
    c.notes = make("p");
    // Links lead here: with a tabindex, the keyboard's focus follows them.
    c.e = make("article", {id: id + "-" + ++made, class: "card", tabindex: "-1"}, c.name, c.state, make("div", {}, c.about, c.where), c.notes);
    $(column).append(c.e);
    return c;
  });
}

// part returns the numbers of one thing on a card, such as one of an engine's models, and how they were.
function part(c, key) {
  return keyed(c.parts, key, () => {
    const p = {points: [], snapshots: [], cells: new Map(), name: make("h4", {hidden: ""}), numbers: make("dl", {class: "numbers"})};
    p.e = make("div", {}, p.name, p.numbers);
    c.e.append(p.e);
    return p;
  });
}

// cell shows a number of a part; with history, also how it was.
function cell(p, {label, title}, text, loud, history) {
  const s = keyed(p.cells, label, () => {
    const s = {value: make("span"), peak: make("small"), path: history && make("path")};
    s.dd = make("dd", {}, s.value, " ", s.peak, ...history ? [make("svg", {class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true"}, s.path)] : []);
    p.numbers.append(make("div", {title}, make("dt", {}, label), s.dd));
    return s;
  });
  say(s.value, text);
  s.dd.classList.toggle("loud", Boolean(loud));
  return s;
}

// level marks a card as bad, as one to look at, or as well; the state says the same in words.
function level(c, how, state) {
  c.e.classList.toggle("bad", how === "bad");
  c.e.classList.toggle("look", how === "look");
  c.loud = how;
  say(c.state, (how === "bad" ? "✖ " : how === "look" ? "▲ " : "") + state);
}

// sweep removes cards of what is gone, and puts the others in order.
function sweep(cards, seen, column, order) {
  for (const [key, c] of cards) if (!seen.has(key)) { c.e.remove(); cards.delete(key); }
  const sorted = [...cards.values()].sort((a, b) => order(a).localeCompare(order(b), "en", {numeric: true}));
  for (const p of $(column).querySelectorAll(":scope > p")) p.remove(); // what stands in for none
  sorted.forEach((c, i) => { if ($(column).children[i] !== c.e) $(column).insertBefore(c.e, $(column).children[i] || null); });
}

// drawModel updates the numbers of one model of an engine, and returns whether requests wait for its KV cache. of returns its samples by name.
function drawModel(p, of, name, now) {
  p.name.hidden = !name;
  say(p.name, name || "");
  const values = name => of(name).map(s => s.v), after = {t: now, ttft: histogram(of(M.ttft)), itl: histogram(of(M.itl))};
  p.snapshots = p.snapshots.filter(s => now - s.t <= LATELY + POLL);
  // The oldest of this life of the engine: what it counted before a restart, or while nobody looked, is not of the last minute.
  const since = h => p.snapshots.find(s => s[h].size && [...s[h]].every(([le, n]) => n <= (after[h].get(le) || 0)));
  const point = {t: now, running: sum(values(M.running)), waiting: sum(values(M.waiting)), kv: max(values(M.kv))}, says = {};
  for (const h of ["ttft", "itl"]) {
    const before = since(h);
    point[h] = before ? quantile(0.95, before[h], after[h]) : null;
    says[h] = point[h] !== null ? seconds(point[h]) : !after[h].size ? "–" : before ? "none lately" : "…";
  }
  p.snapshots.push(after);
  p.points = p.points.filter(p => now - p.t < KEEP);
  p.points.push(point);
  const pressed = point.kv > 0.9 && point.waiting > 0;
  for (const n of NUMBERS) {
    const s = cell(p, n, says[n.of] || n.show(point[n.of]), pressed && n.of === "kv", true);
    const peak = max(p.points.map(p => p[n.of]).filter(v => v !== null));
    say(s.peak, peak === null ? "" : "peak " + n.show(peak));
    spark(s.path, p.points, n.of, n.top, now);
  }
  return pressed;
}

// changes says which settings of an engine changed last, and when it started, for a day after either.
function changes(changed, started, now) {
  const lately = t => now / 1e3 - t < 86400, when = t => (now / 1e3 - t < 43200 ? "" : new Date(1e3 * t).toLocaleDateString() + " ") + clock(1e3 * t);
  const says = changed.filter(s => lately(s.v)).sort((a, b) => b.v - a.v).map(({l, v}) => `Changed: ${l.setting} ${l.old} → ${l.new} at ${when(v)}.`);
  if (started !== null && lately(started)) says.push(`Started at ${when(started)}.`);
  return says.join(" ");
}

// drawEngines updates the engines, and reports what is wrong with them.
function drawEngines(page, listed, now, problem) {
  const byPlace = new Map();
  for (const name of [M.info, M.running, M.waiting, M.kv, M.ttft, M.itl, M.sleeping, M.runsOn, M.started, M.changed]) {
    for (const s of page.get(name)) keyed(keyed(byPlace, place(s.l), () => new Map()), name, () => []).push(s);
  }
  const seen = new Set();
  for (const {l, v: up} of page.get(M.up)) {
    const key = place(l), c = card(engines, "engines", "engine", key);
    seen.add(key);
    const of = (name, model) => ((byPlace.get(key) || new Map()).get(name) || []).filter(s => model === undefined || (s.l.model_name || "") === model);
    const unique = (name, label) => [...new Set(of(name).map(s => s.l[label] || ""))];
    const known = unique(M.info, "model_name"), models = known.length ? known.sort() : c.parts.size ? [...c.parts.keys()] : [""];
    const several = models.length > 1;
    say(c.name, l.pod || l.server);
    say(c.about, [several ? models.length + " models" : known[0], join(l.runtime, unique(M.info, "version").filter(Boolean).join(", ")), l.namespace, l.container, l.pod && l.server].filter(Boolean).join(" · "));
    c.gpus = of(M.runsOn).map(s => s.l);
    for (const [model, p] of c.parts) if (!models.includes(model)) { p.e.remove(); c.parts.delete(model); }
    const pressed = models.filter(model => drawModel(part(c, model), name => of(name, model), several && (model || "unnamed"), now));

    const labels = {namespace: l.namespace, pod: l.pod, server: l.server, model_name: several ? "" : known[0]};
    const why = listed.find(e => e.server === l.server && e.pod === (l.pod || "") && e.namespace === (l.namespace || ""));
    say(c.notes, [up ? "" : why ? why.todo : "", changes(of(M.changed), max(of(M.started).map(s => s.v)), now)].filter(Boolean).join(" "));
    if (up === 1 && max(of(M.sleeping).map(s => s.v)) === 1) level(c, "", "asleep");
    else if (up === 1 && pressed.length) {
      level(c, "look", "KV cache full, and requests wait");
      for (const model of pressed) problem("look", "KV cache full while requests wait", "BranchKVPressure", c, {...labels, model_name: model});
    } else if (up === 1) level(c, "", "up");
    else if (l.reason === "loading") {
      level(c, "look", "loads its model");
      problem("look", "engine loads its model", "BranchColdStart", c, labels);
    } else if (l.reason === "no_worker") {
      level(c, "bad", "no worker: " + l.reason);
      problem("bad", "no worker behind it: " + l.reason, "LLMEngineDown", c, labels);
    } else {
      level(c, "bad", "not read: " + l.reason);
      problem("bad", "engine not read: " + l.reason, "LLMEngineDown", c, labels);
    }
  }
  sweep(engines, seen, "engines", c => (c.gpus.length ? c.gpus[0].gpu : "~") + "\n" + c.about.textContent);
}

// drawGPUs updates the GPUs, and reports what is wrong with them.
function drawGPUs(page, now, problem) {
  const byGPU = new Map(), seen = new Set();
  for (const name of [M.gpuUp, M.gpuInfo, M.clock, M.clockMax, M.throttle, M.bandwidth, M.busy, M.temperature, M.margin, M.power, M.ecc, M.xidTime, M.recovery, M.health, M.condition, ...FAULTS.map(f => f.m)]) {
    for (const s of page.get(name)) if (s.l.gpu_uuid) keyed(keyed(byGPU, s.l.gpu_uuid, () => new Map()), name, () => []).push(s);
  }
  for (const [uuid, families] of byGPU) {
    const c = card(gpus, "gpus", "gpu", uuid);
    seen.add(uuid);
    // find returns the value of the whole GPU's sample with these labels.
    const find = (name, labels = {}) => {
      const s = (families.get(name) || []).find(({l}) => !l.gpu_instance_id && Object.entries(labels).every(([k, v]) => l[k] === v));
      return s ? s.v : null;
    };
    const [info] = families.get(M.gpuInfo) || [{l: {}}], [up] = families.get(M.gpuUp) || [{l: {}, v: 1}];
    c.index = up.l.gpu || info.l.gpu || "";
    say(c.name, "GPU " + (c.index || uuid));
    say(c.about, [info.l.name, info.l.pci_bus_id].filter(Boolean).join(" · "));
    c.e.title = uuid;
    const labels = {gpu_uuid: uuid, pci_bus_id: info.l.pci_bus_id}, wrong = [];
    const fault = (how, says, runbook) => { wrong.push({how, says}); problem(how, "GPU: " + says, runbook, c, labels); };

    if (up.v !== 1) fault("bad", "does not answer: " + up.l.reason, "LLMGPUFailed");
    for (const f of FAULTS) if (find(f.m) === 1) fault(f.mild ? "look" : "bad", f.says, f.runbook);
    const reasons = (families.get(M.throttle) || []).filter(s => s.v === 1 && s.l.reason !== "gpu_idle").map(s => s.l.reason);
    const harms = reasons.filter(r => (THROTTLES[r] || {}).harm);
    // hw_slowdown is also set with its finer reasons.
    for (const r of harms) if (r !== "hw_slowdown" || harms.length === 1) fault("bad", THROTTLES[r].says, THROTTLES[r].harm);
    for (const {l} of families.get(M.recovery) || []) if (l.action !== "none") fault("look", "the driver asks for " + l.action.replaceAll("_", " "), "LLMGPUNeedsService");
    const errors = severity => sum((families.get(M.ecc) || []).filter(({l}) => l.severity === severity && l.lifetime === "volatile").map(s => s.v));
    const uncorrected = errors("uncorrected");
    if (gained(uuid + " ecc", uncorrected)) fault("bad", "memory errors that ECC could not correct", "LLMGPUNeedsService");
    const xids = drawXIDs(page, families, uuid, now, fault);

    const sm = find(M.clock, {domain: "sm"}) ?? find(M.clock, {domain: "graphics"}), most = find(M.clockMax, {domain: "sm"}) ?? find(M.clockMax, {domain: "graphics"});
    const hot = find(M.temperature, {sensor: "gpu"}), left = find(M.margin, {limit: "slowdown"}), bandwidth = find(M.bandwidth);
    const p = part(c, "");
    p.points = p.points.filter(p => now - p.t < KEEP);
    p.points.push({t: now, sm, bandwidth: bandwidth ?? find(M.busy), hot});
    const draw = (of, label, title, text, loud, top) => spark(cell(p, {label, title}, text, loud, true).path, p.points, of, top, now);
    draw("sm", "clock", "Clock of the cores: present and highest.", sm === null ? "–" : (sm / 1e6).toFixed(0) + (most ? " of " + (most / 1e6).toFixed(0) : "") + " MHz", harms.length, most);
    draw("bandwidth", bandwidth === null ? "memory busy" : "memory bandwidth", bandwidth === null ? "Share of time in which memory was read or written. This GPU does not report bandwidth." : "Share of the memory bandwidth in use, which limits decoding.",
      percent(bandwidth ?? find(M.busy)), false, 1);
    draw("hot", "temperature", "Temperature of the GPU, and the degrees left until it slows down.", hot === null ? "–" : Math.round(hot) + " °C" + (left === null ? "" : ", " + Math.round(left) + " left"), left !== null && left <= 0, 100);
    cell(p, {label: "power", title: "Power drawn now."}, find(M.power, {scope: "gpu"}) === null ? "–" : Math.round(find(M.power, {scope: "gpu"})) + " W");
    cell(p, {label: "memory errors", title: "ECC errors since the driver was loaded, uncorrected and corrected."},
      uncorrected === null ? "–" : uncorrected + errors("corrected") ? number(uncorrected) + " lost, " + number(errors("corrected")) + " corrected" : "none", uncorrected > 0);
    cell(p, {label: "driver errors", title: "XIDs in the last hour."}, xids || "none in an hour", xids);
    cell(p, {label: "verdict", title: "Health of the GPU and the reasons; /verdict/gpus has the remedy."}, ...verdict(families, find(M.health)));
    const mild = reasons.filter(r => !harms.includes(r)).map(r => (THROTTLES[r] || {says: r}).says);
    level(c, wrong.some(w => w.how === "bad") ? "bad" : wrong.length ? "look" : "", wrong.map(w => w.says).join("; ") || mild.join("; ") || (reasons.length ? "" : "not throttled"));
  }
  sweep(gpus, seen, "gpus", c => c.index);
}

// drawXIDs returns the XIDs of the last hour in words, and reports those that page.
function drawXIDs(page, families, uuid, now, fault) {
  const says = [];
  for (const {l, v} of families.get(M.xidTime) || []) {
    if (now / 1e3 - v > 3600) continue;
    const {l: known} = page.get(M.xidInfo).find(s => s.l.xid === l.xid) || {l: {}};
    says.push(join("XID", l.xid, "at", clock(1e3 * v), known.meaning && "(" + known.meaning + ")"));
    if (known.severity === "page") fault("bad", join("driver error XID", l.xid + ":", known.meaning), "LLMGPUFailed");
  }
  return says.join(", ");
}

// verdict returns the verdict on a GPU in words, and whether it is to leave service.
function verdict(families, health) {
  const why = [...families.get(M.condition) || []].sort((a, b) => a.v - b.v).map(({l, v}) => l.condition.replaceAll("_", " ") + " since " + clock(1e3 * v));
  return [health === null ? "–" : [VERDICTS[health] || "unknown", ...why].join(", "), health > 1];
}

// gained reports whether a counter is above what it was when the page first saw it.
function gained(key, v) {
  return v !== null && v > keyed(last, "first " + key, () => v);
}

// promised identifies an objective of a model.
const promised = l => JSON.stringify([l.slo, l.namespace || "", l.model_name || ""]);

// count adds up the events of objectives since the last poll, and forgets those too old.
function count(page, now) {
  spent = spent.filter(s => now - s.t < KEEP);
  const gains = new Map(); // one for each objective and kind: engines share them
  for (const [name, of] of [[M.events, "events"], [M.badEvents, "bad"]]) {
    for (const {l, v} of page.get(name)) {
      const key = name + JSON.stringify(l), before = last.get(key);
      last.set(key, v);
      if (before !== undefined && v !== before) keyed(gains, promised(l) + of, () => ({t: now, key: promised(l), of, n: 0})).n += v < before ? v : v - before;
    }
  }
  spent.push(...gains.values());
}

// table replaces the rows of a table; the first is its head.
function table(id, head, rows) {
  $(id).replaceChildren(make("thead", {}, make("tr", {}, ...head.map(h => make("th", {scope: "col"}, h)))),
    make("tbody", {}, ...rows.map(r => make("tr", {}, ...r.map(v => make("td", {}, v))))));
}

// burningNow returns the share of bad events of an objective now: in the shortest time in which enough came, since the first of them, or else over all.
function burningNow(key, now, over) {
  for (const [span, enough] of JSON.parse(settings.now)) {
    const of = {events: 0, bad: 0}, lately = spent.filter(s => s.key === key && now - s.t < span), first = lately.find(s => s.of === "bad");
    for (const s of lately) if (first && s.t >= first.t) of[s.of] += s.n;
    if (of.bad >= enough && of.events) return of.bad / of.events;
  }
  return over;
}

// drawObjectives shows the share of bad events and what it does to the budget.
function drawObjectives(page, now, problem) {
  count(page, now);
  const of = (name, slo) => (page.get(name).find(s => s.l.slo === slo) || {v: null}).v, byKey = new Map();
  for (const {l} of page.get(M.events)) keyed(byKey, promised(l), () => ({l, events: 0, bad: 0}));
  for (const s of spent) if (byKey.has(s.key)) byKey.get(s.key)[s.of] += s.n;
  const rows = [...byKey.entries()].sort(([a], [b]) => a.localeCompare(b)).map(([key, {l, events, bad}]) => {
    const objective = of(M.objective, l.slo), period = of(M.period, l.slo), share = events ? bad / events : null;
    const burn = share === null || objective === null ? null : share / (1 - objective), gone = burn && period * (1 - objective) / burningNow(key, now, share);
    const severity = (page.get(M.sloInfo).find(s => s.l.slo === l.slo) || {l: {}}).l.severity;
    const kept = page.get(M.maintenance).some(s => s.l.slo === l.slo && s.l.model_name === l.model_name && s.l.namespace === l.namespace);
    const enough = bad >= Number(settings.leastBad) && severity !== "none" && !kept;
    const how = !enough || burn <= 1 ? "" : gone < Number(settings.exhaustion) || share >= Number(settings.outage) ? "bad" : "look";
    if (how) problem(how, "objective " + l.slo + " of " + l.model_name + " burns its budget " + times(burn) + " too fast", how === "bad" ? "LLMErrorBudgetFastBurn" : "LLMErrorBudgetSlowBurn", null,
      {namespace: l.namespace, model_name: l.model_name, slo: l.slo});
    const verdict = how ? make("strong", {class: how}, how === "bad" ? "✖ burns" : "▲ burns") : kept ? "maintenance" : share === null ? "no requests yet" : "holds";
    return [l.slo, verdict, objective === null ? "–" : +(100 * objective).toFixed(3) + " % good" + (l.threshold ? " within " + seconds(Number(l.threshold)) : ""),
      share === null ? "–" : join(percent(share), "(" + bad.toFixed(0), "of", events.toFixed(0) + ")"),
      burn === null ? "–" : times(burn) + (burn > 1 ? ": at the present rate, a full budget of " + lasting(period) + " is gone in " + lasting(gone) : ""), join(l.namespace, l.model_name)];
  });
  const section = $("objectives").closest("section");
  say(section.querySelector("p"), rows.length ? "Over " + duration(now) + ". Burn 1x spends the budget of bad events exactly within its period." : "No engine has reported requests that count for an objective yet.");
  section.querySelector(".wide").hidden = !rows.length;
  table("objectives", ["objective", "verdict", "promise", "bad", "burn", "model"], rows);
}

// duration names the time that sums cover.
const duration = now => now - opened < KEEP ? "the " + lasting((now - opened) / 1e3) + " since this page was opened" : "the last " + lasting(KEEP / 1e3);

// drawProbes shows how synthetic requests end.
function drawProbes(page) {
  const byProbe = new Map(), key = l => [l.probe, l.model_name, l.server].join("\n");
  for (const [name, of, label] of [[M.probes, "ended", "outcome"], [M.probeSkipped, "skipped", "reason"]]) {
    for (const {l, v} of page.get(name)) {
      const probe = keyed(byProbe, key(l), () => ({l, ended: [], skipped: []}));
      if (v) probe[of].push(v + " " + l[label].replaceAll("_", " "));
    }
  }
  const section = $("probes").closest("section");
  section.hidden = !byProbe.size;
  say(section.querySelector("p"), "Since the exporter started.");
  table("probes", ["probe", "model", "asks", "ended", "not sent", "first token, p95"], [...byProbe.values()].map(({l, ended, skipped}) => [l.probe, l.model_name, l.server,
    ended.join(", ") || "–", skipped.join(", ") || "–", seconds(quantile(0.95, new Map(), histogram(page.get(M.probeTTFT).filter(s => key(s.l) === key(l)))))]));
}

// drawUnread shows what discovery has looked at.
function drawUnread({places, problem: why}) {
  const section = $("unread").closest("section");
  section.hidden = !places.length && !why;
  say(section.querySelector("p"), why ? "Discovery fails; engines found before are still read: " + why : "");
  table("unread", ["address", "pod", "state", "why"], places.map(p => [p.server, join(p.namespace, p.pod, p.container), p.state, p.todo]));
}

// connect draws a line from each engine to its GPUs, and says the same in words.
function connect() {
  const lines = $("lines"), box = lines.getBoundingClientRect(), paths = [];
  for (const c of engines.values()) {
    const on = c.gpus.map(l => gpus.get(l.gpu_uuid)).filter(Boolean).sort((a, b) => a.index - b.index), links = on.flatMap((g, i) => [i ? ", " : "runs on ", make("a", {href: "#" + g.e.id}, "GPU " + g.index)]);
    if (c.where.textContent !== links.map(x => x.textContent || x).join("")) c.where.replaceChildren(...links);
    for (const g of new Set(on)) {
      const [a, b] = [c.e, g.e].map(e => { const r = e.getBoundingClientRect(); return r.top - box.top + Math.min(r.height / 2, 60); });
      paths.push(make("path", {d: `M0 ${a}C${box.width / 2} ${a} ${box.width / 2} ${b} ${box.width} ${b}`, class: c.loud === "bad" || g.loud === "bad" ? "loud" : ""}));
    }
  }
  lines.replaceChildren(...paths);
}

// drawVerdicts returns where to look first, one line per model that suffers.
function drawVerdicts() {
  return verdicts.map(v => make("li", {class: v.health === "failing" ? "bad" : "look"}, make("strong", {}, "Look first at: " + v.branch + ". "), v.says + ". ",
    v.lever ? "Do first, " + v.lever + ". " : "", v.or ? v.or + ". " : "",
    join(v.model && v.model + ",", v.confidence, "confidence:", v.evidence.slice(0, 6).map(e => e.says + (e.of ? ", " + e.of : "") + " " + e.shown).join("; ")) + ". ",
    make("a", {href: v.runbook}, "Runbook")));
}

// drawProblems lists where to look first, then what is wrong, the worst first: one line per kind, with all that it befell.
function drawProblems(problems) {
  const order = [...problems.values()].sort((a, b) => a.how.localeCompare(b.how));
  if (order.length) judge();
  else verdicts = [];
  const list = drawVerdicts().concat(order.map(p => {
    const only = p.all.length === 1 ? new URLSearchParams(Object.entries(p.all[0].labels).filter(([, v]) => v)) : "";
    const who = p.all.filter(x => x.card).slice(0, 8).flatMap((x, i) => [i ? ", " : ": ", make("a", {href: "#" + x.card.e.id}, x.card.name.textContent)]);
    return make("li", {class: p.how}, make("strong", {}, p.how === "bad" ? "✖ wrong: " : "▲ look: "), p.says, ...p.all.length > 1 ? [" (" + p.all.length + ")"] : [], ...who,
      p.all.length > 8 ? " …" : "", ...p.runbook ? [" ", make("a", {href: "runbooks/" + p.runbook + (String(only) && "?" + only)}, "Runbook " + p.runbook)] : []);
  }));
  const same = $("problems").textContent === list.map(e => e.textContent).join("");
  if (!same) {
    const focused = $("problems").contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    $("problems").replaceChildren(...list);
    if (focused !== null) ([...$("problems").querySelectorAll("a")].find(a => a.getAttribute("href") === focused) || $("verdict")).focus();
  }
  const wrong = order.filter(p => p.how === "bad").length, look = order.length - wrong, none = !engines.size && !gpus.size;
  $("verdict").classList.toggle("loud", wrong > 0);
  say($("verdict"), none ? "No engine and no GPU is read." : wrong ? wrong + (wrong === 1 ? " thing is wrong" : " things are wrong") + (look ? ", " + look + " to look at" : "")
    : look ? look + (look === 1 ? " thing" : " things") + " to look at" : "Nothing stands out.");
}

// draw shows a poll.
function draw(page, listed, now) {
  const problems = new Map();
  const problem = (how, says, runbook, card, labels) => keyed(problems, how + says, () => ({how, says, runbook, all: []})).all.push({card, labels});
  for (const {l, v} of page.get(M.missing)) if (v === 1) problem("bad", "GPU " + l.pci_bus_id + " is on the bus and does not answer", "LLMGPUUnread", null, l);
  const source = page.get(M.sourceUp).some(s => s.v === 1);
  for (const {l, v} of page.get(M.nvmlUp)) if (v === 0 && !source && l.reason !== "built_without_cgo") problem(l.reason === "starting" || l.reason === "detached" ? "look" : "bad", "GPUs cannot be read: " + l.reason, "LLMGPUUnread", null, {});
  for (const {l, v} of page.get(M.discovery)) if (v === 0) problem("look", "discovery of engines fails: " + l.reason, "LLMDiscoveryFailed", null, {});
  for (const {v} of page.get(M.reloaded)) if (v === 0) problem("look", "the exporter refused its new configuration and keeps the old one", "", null, {});
  drawObjectives(page, now, problem); // first what people suffer, then what may be why
  drawEngines(page, listed.engines, now, problem);
  drawGPUs(page, now, problem);
  drawProbes(page);
  drawUnread(listed);
  drawProblems(problems);
  if (!engines.size) $("engines").replaceChildren(make("p", {class: "quiet"}, "No engine: none is configured, and none was found. ", make("a", {href: "engines"}, "What to do")));
  if (!gpus.size) $("gpus").replaceChildren(make("p", {class: "quiet"}, "No GPU is read."));
  connect();
}

// get fetches a path. An engine that takes long costs its own numbers, not the page: the exporter is told when to stop.
async function get(path, accept, limit = 15e3) {
  const answer = await fetch(address(path), {cache: "no-store", headers: {"Accept": accept, "X-Prometheus-Scrape-Timeout-Seconds": "10"}, signal: AbortSignal.timeout(limit)});
  if (!answer.ok) throw new Error(path + " answers " + answer.status);
  return answer;
}

let verdicts = [], judged = -Infinity;

// judge asks the exporter where to look first, twice a minute at most: it reads every engine twice, 10 s apart.
async function judge() {
  if (Date.now() - judged < JUDGE) return;
  judged = Infinity;
  try {
    verdicts = (await (await get("verdict", "application/json", 60e3)).json()).verdicts.filter(v => v.branch && v.health !== "healthy");
  } catch {
    verdicts = []; // polls say what is wrong with the exporter
  }
  judged = Date.now();
}

let due = 0, busy = false, timer, failures = 0, read = 0;

async function poll() {
  busy = true;
  const start = performance.now();
  try {
    const text = await (await get(settings.metrics, "text/plain")).text();
    const took = performance.now() - start;
    const listed = await (await get("engines", "application/json")).json(); // scrapes nothing
    failures = 0;
    read = Date.now();
    document.body.classList.remove("stale");
    draw(parse(text), listed, read);
    say($("as-of"), "as of " + new Date(read).toLocaleString());
    say($("cost"), `Opened at ${clock(opened)}. While visible, the page polls ${POLL / 1e3} s after each answer. The last poll took ${Math.round(took)} ms and ${Math.round(text.length / 1e3)} kB before compression. ` +
      `Each poll makes the exporter read ${engines.size === 1 ? "1 engine" : engines.size + " engines"}, as a scrape by Prometheus does.`);
  } catch (err) {
    failures++;
    document.body.classList.add("stale");
    $("verdict").classList.add("loud");
    say($("verdict"), "✖ The exporter does not answer" + (read ? "; all below is from " + clock(read) : "") + ": " + err.message);
  }
  due = Date.now() + POLL * Math.min(2 ** failures, 12);
  busy = false;
  schedule();
}

// schedule plans the next poll; none while nobody looks.
function schedule() {
  clearTimeout(timer);
  if (!busy && !document.hidden) timer = setTimeout(poll, Math.max(0, due - Date.now()));
}

document.addEventListener("visibilitychange", schedule);
new ResizeObserver(connect).observe($("map"));
schedule();
