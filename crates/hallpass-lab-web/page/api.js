// The server's answers; or files, if the page is a folder of them.

export const isStatic = document.documentElement.hasAttribute("data-static");

/** A query in which order stays and nothing is left out but what is empty. */
export function encode(params) {
  const pairs = [];
  for (const [key, value] of Object.entries(params)) {
    if (value !== "" && value !== undefined && value !== null) pairs.push(`${encodeURIComponent(key)}=${encodeURIComponent(value)}`);
  }
  return pairs.join("&");
}

export function decode(text) {
  const params = {};
  for (const word of (text ?? "").split("&").filter(Boolean)) {
    const at = word.indexOf("=");
    const [key, value] = at < 0 ? [word, ""] : [word.slice(0, at), word.slice(at + 1)];
    try {
      params[decodeURIComponent(key)] = decodeURIComponent(value);
    } catch {
      params[key] = value;
    }
  }
  return params;
}

const fileName = (path, query) => `data/${path}${query === undefined ? "" : `_${query}`.replace(/[^A-Za-z0-9-]/g, "_")}.json`;

/** Gets a document. Fails with the server's own sentence. */
export async function get(path, params, signal) {
  const query = params && encode(params);
  const address = isStatic ? fileName(path, query) : `api/${path}${query ? `?${query}` : ""}`;
  const response = await fetch(address, { signal });
  if (isStatic && response.status === 404) {
    throw new Error("This copy of the laboratory is a folder of files: it has the tours, the traps, the scenarios and one run of each protocol. For everything else run: hallpass lab serve");
  }
  return read(response);
}

/** Gets the variables of a run's nodes at one moment, for a run that is too large to bring all of them. */
export const statesOf = (params) => (at, signal) => get("state", { ...params, at }, signal);

/** Plays a scenario's text. */
export async function play(text, signal) {
  if (isStatic) throw new Error("To play, the laboratory has to compute every next step. Run: hallpass lab serve");
  return read(await fetch("api/play", { method: "POST", body: text, signal }));
}

async function read(response) {
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Error(`the laboratory did not answer (${response.status})`);
  }
  if (!response.ok) throw new Error(body.error ?? response.statusText);
  return body;
}

/** Follows a job: progress goes to a function, the result is returned. */
export async function follow(path, params, onProgress, signal) {
  if (isStatic) throw new Error("This has to be computed. Run: hallpass lab serve");
  const response = await fetch(`api/${path}?${encode(params)}`, { signal });
  if (!response.ok) return read(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the laboratory stopped in the middle");
    buffer += value;
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(buffer.slice(0, end)) ?? [];
      buffer = buffer.slice(end + 2);
      if (name === "progress") onProgress(JSON.parse(data));
      if (name === "done") return JSON.parse(data);
      if (name === "failed") throw new Error(JSON.parse(data));
    }
  }
}
