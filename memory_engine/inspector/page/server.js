// What the page asks its server, and how it hears that a log has grown.

const token = new URLSearchParams(location.search).get("token") ?? "";

class ServerError extends Error {
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }

  get title() {
    if (this.status === 0) return "No answer";
    if (this.status === 401 || this.status === 403) return "Not allowed";
    return this.type || "That did not work";
  }
}

export function get(path, params = {}, signal = undefined) {
  const query = new URLSearchParams(
    Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  return asked(`api/${path}?${query}`, { headers: { "X-Token": token }, cache: "no-store", signal });
}

// Ask for something to be written: the server does it only where it was started to.
export function post(path, body) {
  const headers = { "X-Token": token, "Content-Type": "application/json" };
  return asked(`api/${path}`, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store" });
}

async function asked(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "", "The server does not answer. Is `memory-engine inspect` still running?");
  }
  if (answer.ok) return answer.json();
  if (answer.status === 401 || answer.status === 403) {
    throw new ServerError(
      answer.status,
      "",
      "Open the whole address that `memory-engine inspect` printed; it ends in a token.",
    );
  }
  const { error } = await answer.json().catch(() => ({}));
  throw new ServerError(
    answer.status,
    error?.type ?? "",
    error?.message ?? `The server said ${answer.status} ${answer.statusText}.`,
  );
}

export const isAbort = (error) => error.name === "AbortError";

// News of a thread (its head), or of the store where no thread is named. A hidden page listens to nothing:
// a browser allows few connections to one server. `stopped` is told whether the server is out of reach.
export class Live {
  constructor(heard, stopped = () => {}) {
    this.heard = heard;
    this.stopped = stopped;
    this.params = null;
    this.source = null;
    this.pause = 1000; // before the next try; longer each time
    document.addEventListener("visibilitychange", () => (document.hidden ? this.disconnect() : this.connect()));
    addEventListener("pagehide", () => this.disconnect());
  }

  listen(params) {
    this.disconnect();
    this.params = params;
    if (!document.hidden) this.connect();
  }

  connect() {
    if (this.params === null || this.source) return;
    const source = new EventSource(`api/live?${new URLSearchParams({ ...this.params, token })}`);
    for (const kind of ["head", "threads"]) {
      source.addEventListener(kind, (event) => {
        if (source !== this.source) return;
        this.stopped(false);
        this.pause = 1000;
        this.heard(JSON.parse(event.data));
      });
    }
    const lost = () => {
      if (source !== this.source) return;
      this.stopped(true);
      this.disconnect();
      this.pause = Math.min(30_000, this.pause * 2);
      this.timer = setTimeout(() => this.connect(), this.pause);
    };
    source.addEventListener("end", lost);
    source.onerror = lost;
    this.source = source;
  }

  disconnect() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  stop() {
    this.disconnect();
    this.params = null;
  }
}
