// The state after the chosen event: tokens by type, and its chunks in order.

import { chunkCard } from "./chunks.js";
import { counted, el, empty, failure, number, oneLine, section, setStyle } from "./dom.js";
import { get } from "./server.js";

const PAGE = 200;

export const stateTab = {
  id: "state",
  title: "State",
  stays: true,
  key: ({ seq }) => String(seq ?? 0),
  load: ({ thread, seq }, signal) => get("state", { thread, seq: seq ?? 0, offset: 0, limit: PAGE }, signal),
  show(body, data, look) {
    const total = data.total ?? data.chunks.length;
    body.replaceChildren(
      el("h2", {}, "State after ", el("span", { class: "dim", text: `event ${number(data.seq)}` })),
      el("p", { class: "sum", text: `${counted(total, "chunk")}, ${counted(data.tokens, "token")}` }),
    );
    if (!total) {
      body.append(empty("The state is empty here"));
      return;
    }
    body.append(section("Tokens by type", bars(data.by_type)), section("Chunks", list(data, total, look)));
  },
};

function bars(types) {
  const most = Math.max(1, ...types.map(({ tokens }) => tokens));
  const whole = Math.max(
    1,
    types.reduce((sum, { tokens }) => sum + tokens, 0),
  );
  const rows = [...types]
    .sort((a, b) => b.tokens - a.tokens)
    .map(({ type, chunks, tokens }) => {
      const bar = el("span", { class: "amount" });
      setStyle(bar, { width: `${(100 * tokens) / most}%` });
      return el(
        "tr",
        {},
        el("th", { scope: "row", text: oneLine(type, 40) }),
        el("td", { class: "bar-cell" }, bar),
        el("td", { class: "num", text: number(tokens) }),
        el("td", { class: "num dim", text: `${Math.round((100 * tokens) / whole)} %` }),
        el("td", { class: "num dim", text: counted(chunks, "chunk") }),
      );
    });
  return el("table", { class: "bars", "aria-label": "Tokens by type" }, el("tbody", {}, ...rows));
}

// The chunks page by page: a state may hold ten thousand.
function list(data, total, { thread }) {
  const box = el("div", { class: "cards" });
  let got = 0;
  const put = (chunks) => {
    got += chunks.length;
    box.append(...chunks.map((chunk) => chunkCard(chunk)));
    if (got >= total || !chunks.length) return;
    const more = el("button", {
      type: "button",
      text: `Show ${number(Math.min(PAGE, total - got))} more of ${number(total - got)}`,
    });
    const next = async () => {
      more.disabled = true;
      try {
        const { chunks: following } = await get("state", { thread, seq: data.seq, offset: got, limit: PAGE });
        more.remove();
        put(following);
      } catch (error) {
        more.disabled = false;
        more.after(failure(error));
      }
    };
    more.addEventListener("click", next);
    box.append(more);
  };
  put(data.chunks);
  return box;
}
