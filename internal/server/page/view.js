// What is shown of what the agent says. Texts of pods are only ever set as text.

export const $ = (id) => document.getElementById(id);

export function make(name, className, ...content) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...content);
  return element;
}

// setText leaves the element alone if nothing changes, so that nothing is read out
// again.
export function setText(element, text, className) {
  if (element.textContent !== text) element.textContent = text;
  if (className !== undefined && element.className !== className) element.className = className;
}

export function duration(seconds) {
  if (seconds < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds < 60) return `${+seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${+(seconds / 60).toFixed(seconds < 600 ? 1 : 0)} min`;
  if (seconds < 86400) return `${+(seconds / 3600).toFixed(1)} h`;
  return `${+(seconds / 86400).toFixed(1)} d`;
}

export function clock(time) {
  const t = new Date(time);
  return `${t.toLocaleTimeString("en-GB")}.${String(t.getMilliseconds()).padStart(3, "0")}`;
}

function facts(list, pairs) {
  list.replaceChildren(...pairs.filter(([, value]) => value !== undefined && value !== "").map(([term, value, all]) =>
    make("div", all ? "all" : "", make("dt", "", term), make("dd", "", String(value)))));
}

export function showHealth(health) {
  const failing = health.checks.filter((c) => !c.ok);
  const [text, kind] = !health.ready ? ["not ready", "bad"] : failing.length > 0 ? ["ready, but degraded", "warn"] : ["ready", "ok"];
  setText($("verdict"), text, `pill ${kind}`);
  $("checks").replaceChildren(...health.checks.map((c) => {
    const [word, kind] = c.ok ? ["ok", "ok"] : c.ready ? ["degraded", "warn"] : ["failed", "bad"];
    const item = make("li", "", make("span", "", c.name), make("span", `chip ${kind}`, word));
    if (c.reason) {
      const since = c.since ? `, since ${clock(c.since).slice(0, 8)}` : "";
      item.append(make("span", "reason", c.reason + since));
    }
    return item;
  }));
}

export function showStream(stream, rate) {
  const kind = { up: "ok", down: "bad" }[stream.state] ?? "warn";
  setText($("stream-state"), stream.state, `pill ${kind}`);
  facts($("stream-facts"), [
    ["Events a second", rate === null ? "–" : rate.toFixed(rate < 10 ? 1 : 0)],
    ["Events", stream.events.toLocaleString("en")], ["Reconnects", stream.reconnects],
    ["Lost", stream.lost], ["Malformed", stream.malformed || ""], ["Error", stream.error, true],
  ]);
}

export function showPeriod(relist) {
  setText($("period-state"), relist.periodic ? relist.period_state : "not periodic", "pill info");
  facts($("period-facts"), [
    ["Period", relist.periodic ? duration(relist.period_seconds) : "none"],
    ["Clean relists in a row", relist.period_state === "proving" ? `${relist.clean_relists} of ${relist.needed_relists}` : relist.clean_relists],
    ["Strikes", relist.strikes], ["Failures in a row", relist.failures],
    ["Inspections", `${relist.inspections_in_flight} running, ${relist.inspections_waiting} waiting`], ["Error", relist.error, true],
  ]);
}

// names finds the pod of an id, for the queue.
function names(pods) {
  const of = new Map();
  for (const pod of pods) {
    const pair = `${pod.namespace}/${pod.name}`;
    for (const s of pod.sandboxes) of.set(s.id, pair);
    for (const c of pod.containers) of.set(c.id, `${pair} · ${c.name}`);
  }
  return of;
}

const shownAsks = 100; // what is further down will come up

export function showQueue(asks, pods) {
  const of = names(pods);
  setText($("queue-count"), asks.length > 0 ? String(asks.length) : "");
  $("no-queue").classList.toggle("hidden", asks.length > 0);
  $("queue").replaceChildren(...asks.slice(0, shownAsks).map((a) => make("li", "",
    make("strong", "", of.get(a.id) ?? a.id.slice(0, 13)), ` ${a.kind} `,
    ...a.reasons.map((r) => make("span", "chip info", r)),
    a.fails > 0 ? make("span", "chip bad", `${a.fails} calls failed in a row`) : "")));
}

// restarts counts the attempts after the first of each container.
function restarts(pod) {
  const highest = new Map();
  for (const c of pod.containers) highest.set(c.name, Math.max(highest.get(c.name) ?? 0, c.attempt));
  return [...highest.values()].reduce((sum, n) => sum + n, 0);
}

// latest returns the last attempt of each container.
function latest(pod) {
  const of = new Map();
  for (const c of pod.containers) if (!of.has(c.name) || of.get(c.name).attempt <= c.attempt) of.set(c.name, c);
  return [...of.values()];
}

function containerChip(c) {
  const exit = c.exit_code === null ? "" : ` ${c.exit_code}`;
  const kind = c.error ? "warn" : c.state === "running" ? "ok" : c.state === "exited" && c.exit_code !== 0 ? "bad" : "";
  const chip = make("span", `chip ${kind}`, `${c.name}: ${c.state}${c.state === "exited" ? exit : ""}`);
  if (c.error) chip.append(` (can't be inspected: ${c.error})`);
  return chip;
}

export function showPods(pods) {
  setText($("pods-count"), String(pods.length));
  setText($("no-pods"), pods.length > 0 ? "" : "No pods.");
  $("no-pods").classList.toggle("hidden", pods.length > 0);
  $("pod-rows").replaceChildren(...pods.map((pod) => {
    const state = pod.sandboxes[0]?.state ?? "no sandbox";
    const running = latest(pod).filter((c) => c.state === "running").length;
    return make("tr", "",
      make("td", "", make("strong", "", pod.name || pod.key), make("span", "muted", pod.namespace || "no namespace")),
      make("td", "", make("span", `chip ${state === "ready" ? "ok" : "warn"}`, state),
        make("span", "muted", `${running} of ${latest(pod).length} running${pod.restored ? ", not seen in this run yet" : ""}`)),
      make("td", "", ...latest(pod).map(containerChip)),
      make("td", "number", String(restarts(pod))));
  }));
}

const eventKinds = {
  SandboxReady: "ok", ContainerStarted: "ok", SandboxNotReady: "warn", SandboxRemoved: "", ContainerRemoved: "",
  SandboxCreated: "info", ContainerCreated: "info", SequenceSkipped: "warn",
};

// latency is how long it took to see an event, s; null where that isn't known or
// the event amends an earlier one. A runtime whose time is ahead makes it no less than 0.
export function latency(ev) {
  if (!ev.occurred_at || ev.change) return null;
  return Math.max(0, Date.parse(ev.observed_at) - Date.parse(ev.occurred_at)) / 1000;
}

export function eventRow(ev) {
  const died = ev.type === "ContainerDied";
  const kind = died ? (ev.exit_code === 0 ? "" : "bad") : eventKinds[ev.type] ?? "plain";
  const details = [];
  if (died) details.push(ev.exit_code === null ? "exit code unknown" : `exit ${ev.exit_code}`);
  if (ev.reason) details.push(ev.reason);
  if (ev.change) details.push([ev.change, ...(ev.changed ?? [])].join(" "));
  if (ev.state) details.push(ev.state);
  if (ev.type === "SandboxReady" && ev.pod.ip) details.push(ev.pod.ip);
  if (ev.from) details.push(`numbers ${ev.from} to ${ev.to} hold nothing: an agent was killed`);
  if (ev.inferred) details.push("inferred");
  if (ev.volatile) details.push("not written yet");
  const time = make("time", "", (ev.occurred_at ? "" : "~") + clock(ev.occurred_at ?? ev.observed_at));
  time.dateTime = ev.occurred_at ?? ev.observed_at;
  const what = make("span", "what");
  if (ev.pod) {
    what.append(make("strong", "", ev.pod.name || ev.sandbox_id.slice(0, 13)), ev.pod.namespace ? ` in ${ev.pod.namespace}` : "");
    if (ev.container) what.append(` · ${ev.container.name}${ev.container.attempt > 0 ? ` (attempt ${ev.container.attempt})` : ""}`);
  }
  const took = latency(ev);
  const source = ev.source ? ev.source + (took === null ? "" : `, ${duration(took)}`) : "";
  const row = make("li", "", time, make("span", `chip ${kind}`, ev.type), what,
    make("span", "detail", details.join(", ")), make("span", "source", source));
  row.dataset.position = `${ev.epoch}/${ev.seq}`;
  return row;
}

export function showLatency(samples) {
  const rows = [];
  for (const source of ["stream", "relist", "inspect"]) {
    const sorted = [...(samples.get(source) ?? [])].sort((a, b) => a - b);
    const at = (share) => (sorted.length > 0 ? duration(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]) : "–");
    const head = make("th", "", source);
    head.scope = "row";
    rows.push(make("tr", "", head, ...[String(sorted.length), at(0.5), at(0.9), at(1)].map((text) => make("td", "number", text))));
  }
  $("latency-rows").replaceChildren(...rows);
}
