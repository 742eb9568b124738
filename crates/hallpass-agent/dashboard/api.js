// Requests to the agent, with the token that the user has given.

import { $, setText } from "./dom.js";

const STORED = "hallpass-token";
// A longer answer counts as none. A change of the group alone may take ten seconds.
const PATIENCE_MS = 20_000;
// How long to wait before a stream is opened again.
const RETRY_MS = 2_000;

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let asking = null;

function headers() {
  const token = sessionStorage.getItem(STORED);
  return token ? { authorization: `Bearer ${token}` } : {};
}

export async function get(path) {
  return request("GET", path, undefined, PATIENCE_MS);
}

export async function post(path, body, patience = PATIENCE_MS) {
  return request("POST", path, body, patience);
}

async function request(method, path, body, patience) {
  const options = { method, headers: headers(), cache: "no-store" };
  if (patience !== Infinity) options.signal = AbortSignal.timeout(patience);
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const answer = await fetch(path, options);
  if (answer.status === 401) {
    await askForToken();
    return request(method, path, body, patience);
  }
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(answer.status, document.error ?? `status ${answer.status}`);
  return document;
}

/** Asks for a token once, however many requests need one. */
function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = $("token-dialog");
    const wrong = sessionStorage.getItem(STORED) !== null;
    $("token-error").hidden = !wrong;
    setText($("token-error"), wrong ? "The agent does not know this token, or has forgotten it." : "");
    $("token-forget").hidden = true;
    $("token").value = "";
    if (!dialog.open) dialog.showModal();
    dialog.addEventListener("close", () => {
      const token = $("token").value.trim();
      if (token) sessionStorage.setItem(STORED, token);
      $("token-button").hidden = false;
      hidePlainLinks();
      asking = null;
      resolve();
    }, { once: true });
  });
  return asking;
}

/** A link carries no token: where one is needed it leads nowhere. */
function hidePlainLinks() {
  document.querySelector(".without-token").hidden = sessionStorage.getItem(STORED) !== null;
}

export function setUpTokens() {
  hidePlainLinks();
  $("token-button").hidden = sessionStorage.getItem(STORED) === null;
  $("token-button").addEventListener("click", () => {
    $("token-error").hidden = true;
    $("token-forget").hidden = false;
    $("token").value = "";
    const dialog = $("token-dialog");
    dialog.showModal();
    dialog.addEventListener("close", () => {
      const token = $("token").value.trim();
      if (token) sessionStorage.setItem(STORED, token);
    }, { once: true });
  });
  $("token-forget").addEventListener("click", () => {
    sessionStorage.removeItem(STORED);
    location.reload();
  });
}

/**
 * Server-sent events, opened again whenever they end; the browser's own EventSource cannot send a token. Returns what closes
 * the stream. `onEvent` gets the name and the document of each event, `onOpen` is called each time it begins.
 */
export function stream(path, { onOpen = () => {}, onEvent, onError = () => {} }) {
  const end = new AbortController();
  (async () => {
    while (!end.signal.aborted) {
      try {
        const answer = await fetch(path, { headers: headers(), cache: "no-store", signal: end.signal });
        if (answer.status === 401) {
          await askForToken();
          continue;
        }
        if (!answer.ok) {
          const document = await answer.json().catch(() => ({}));
          throw new ApiError(answer.status, document.error ?? `status ${answer.status}`);
        }
        onOpen();
        await read(answer.body, onEvent);
      } catch (error) {
        if (end.signal.aborted) return;
        onError(error);
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  })();
  return () => end.abort();
}

async function read(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      let name = "message", data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (data) onEvent(name, JSON.parse(data));
    }
  }
}
