// Reading from the agent: single answers, and the stream of events, which goes
// on by itself after whatever breaks it.

const tokenKey = "plegd-token";

// Refused is an answer that is no use.
export class Refused extends Error {
  constructor(status, body) {
    super(body.error || `status ${status}`);
    this.status = status;
    this.oldest = body.oldest;
  }
}

function headers(more = {}) {
  const token = sessionStorage.getItem(tokenKey);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function ask(path, options) {
  const response = await fetch(path, { cache: "no-store", redirect: "error", ...options });
  if (response.ok) return response;
  if (response.status === 401) {
    await askForToken();
    return ask(path, { ...options, headers: headers(options.headers) });
  }
  throw new Refused(response.status, await response.json().catch(() => ({})));
}

// get returns what a path answers with.
export async function get(path) {
  const response = await ask(path, { headers: headers(), signal: AbortSignal.timeout(15000) });
  return response.json();
}

let asking = null; // one question for all who need its answer

function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token");
    const input = document.getElementById("token-input");
    const known = sessionStorage.getItem(tokenKey) !== null;
    document.getElementById("token-error").textContent = known ? "That was not the token." : "";
    document.getElementById("token-form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(tokenKey, input.value.trim());
      input.value = "";
      dialog.close();
      asking = null;
      resolve();
    };
    dialog.oncancel = (event) => event.preventDefault(); // there is nothing to see without it
    dialog.showModal();
  });
  return asking;
}

// messages reads server-sent events.
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const message = {};
      for (const line of block.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) message[line.slice(0, at)] = line.slice(at + 2);
      }
      if (message.data) yield message;
    }
  }
}

const keepalive = 10; // s; a stream that is silent for three times as long is dead
const firstDelay = 500, longestDelay = 5000; // ms, between tries

// Feed follows the events that a query selects. It calls
//   event(ev)            for each event
//   link(state, text)    when the connection comes or goes: "up", "down"
//   gap(text)            when events were lost
//   refused(text)        when the query is no use; "" when it is
export class Feed {
  constructor(to) {
    this.to = to;
    this.position = "";
    this.generation = 0;
  }

  // start begins anew with a query and the position after which to begin.
  start(query, position) {
    this.generation++;
    this.stopReading?.abort();
    this.run(this.generation, query, position);
  }

  async run(generation, query, position) {
    this.position = position;
    let lostAt = 0, delay = firstDelay, missed = "nothing was missed";
    while (generation === this.generation) {
      let why = "the agent ended the stream";
      try {
        await this.read(generation, query, () => {
          const after = lostAt ? `connected again after ${Math.max(1, Math.round((Date.now() - lostAt) / 1000))} s, ${missed}` : "live";
          lostAt = 0;
          missed = "nothing was missed";
          delay = firstDelay;
          this.to.refused("");
          this.to.link("up", after);
        });
      } catch (error) {
        if (generation !== this.generation) return;
        if (error instanceof Refused && error.status === 400) {
          this.to.refused(error.message);
          return; // until there is another query
        }
        why = error instanceof Refused ? error.message : "the agent can't be reached";
        if (error instanceof Refused && error.status === 410) {
          this.to.gap(`Events are missing here: ${error.message}.`);
          this.position = error.oldest;
          missed = "events are missing";
        }
      }
      if (generation !== this.generation) return;
      lostAt ||= Date.now();
      this.to.link("down", `${why}; trying again`);
      await new Promise((resolve) => setTimeout(resolve, delay));
      delay = Math.min(delay * 2, longestDelay);
    }
  }

  async read(generation, query, up) {
    const stop = new AbortController();
    this.stopReading = stop;
    let silence;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), 3 * keepalive * 1000);
    };
    heard();
    try {
      const params = new URLSearchParams(query);
      params.set("keepalive", `${keepalive}s`);
      const accept = { Accept: "text/event-stream", "Last-Event-ID": this.position };
      const response = await ask(`v1/events?${params}`, { headers: headers(accept), signal: stop.signal });
      up();
      for await (const message of messages(response.body)) {
        if (generation !== this.generation) return;
        heard();
        const value = JSON.parse(message.data);
        if (value.type === "Error") throw new Error(value.error);
        if (message.id) this.position = message.id;
        if (value.type !== "Bookmark") this.to.event(value);
      }
    } finally {
      clearTimeout(silence);
      stop.abort();
    }
  }
}
