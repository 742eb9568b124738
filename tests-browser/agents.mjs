// Real agents for the tests, and clients of their API.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, openSync, closeSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..");
export const PATIENCE_MS = 120_000;

/** The program under test; null where it was not built. */
export function findBinary() {
  const target = process.env.CARGO_TARGET_DIR ?? join(ROOT, "target");
  const candidates = [process.env.HALLPASS_BIN, join(target, "debug/hallpass"), join(target, "release/hallpass")];
  return candidates.find((candidate) => candidate && existsSync(candidate)) ?? null;
}

export async function until(condition, what) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`it takes too long: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HALLPASS_")));

/** A group of members on loopback, each with an API. */
export class Group {
  static async start(names) {
    const group = new Group();
    group.directory = mkdtempSync(join(tmpdir(), "hallpass-"));
    group.agents = new Map();
    const port = await freePorts(names.length);
    const out = join(group.directory, "g");
    group.run("init", "--names", names.join(","), "--out", out, "--loopback", "--port", String(port));
    for (const name of names) group.spawn(name, ["--config", join(out, name, "hallpass.toml")]);
    await Promise.all(names.map((name) => group.ready(name)));
    return group;
  }

  /** One agent that is alone. */
  static async alone(options = () => []) {
    const group = new Group();
    group.directory = mkdtempSync(join(tmpdir(), "hallpass-"));
    group.agents = new Map();
    group.spawn("alone", ["--data", join(group.directory, "data"), "--socket", join(group.directory, "a.sock"), ...options(group)]);
    await group.ready("alone");
    return group;
  }

  run(...args) {
    return execFileSync(findBinary(), args, { encoding: "utf8", env: ENVIRONMENT });
  }

  spawn(name, args, api = "127.0.0.1:0") {
    const log = join(this.directory, `${name}.log`);
    const file = openSync(log, "a");
    const process = spawn(findBinary(), ["agent", ...args, "--api", api, "--ttl", "10s"], { stdio: ["ignore", "ignore", file], env: ENVIRONMENT });
    closeSync(file);
    this.agents.set(name, { name, process, log, args, url: null });
  }

  async ready(name) {
    const agent = this.agents.get(name);
    agent.url = await until(() => {
      const text = readFileSync(agent.log, "utf8");
      if (agent.process.exitCode !== null) throw new Error(text);
      const found = [...text.matchAll(/\bapi="?(127\.0\.0\.1:\d+)/g)].at(-1);
      return found && `http://${found[1]}`;
    }, `${name} starts`);
    // One that is started again may not listen yet.
    await until(() => fetch(`${agent.url}/readyz`).then((answer) => answer.ok, () => false), `${name} grants locks`);
  }

  url(name) {
    return this.agents.get(name).url;
  }

  async kill(name) {
    const { process } = this.agents.get(name);
    if (process.exitCode !== null || process.signalCode !== null) return;
    const ended = new Promise((resolve) => process.once("exit", resolve));
    process.kill("SIGKILL");
    await ended;
  }

  /** Starts an agent again, with the API where it was. */
  async restart(name) {
    const { args, url } = this.agents.get(name);
    this.spawn(name, args, new URL(url).host);
    await this.ready(name);
  }

  async close() {
    for (const name of this.agents.keys()) await this.kill(name);
    rmSync(this.directory, { recursive: true, force: true });
  }
}

async function freePorts(count) {
  for (let attempt = 0; attempt < 50; attempt += 1) {
    const port = 20_000 + Math.floor(Math.random() * 10_000);
    const tries = Array.from({ length: count }, (_, index) => new Promise((resolve) => {
      const server = createServer().once("error", () => resolve(false)).listen(port + index, "127.0.0.1", () => server.close(() => resolve(true)));
    }));
    if ((await Promise.all(tries)).every(Boolean)) return port;
  }
  throw new Error("there are no free ports");
}

export async function post(url, path, body = {}) {
  const answer = await fetch(url + path, { method: "POST", body: JSON.stringify(body) });
  return { status: answer.status, body: await answer.json() };
}

/** Holds locks until it is told to end, or has lost them. */
export class Holder {
  static async lease(url) {
    const holder = new Holder();
    holder.url = url;
    holder.lost = false;
    const { status, body } = await post(url, "/v1/leases");
    if (status !== 200) throw new Error(JSON.stringify(body));
    holder.lease = body.lease;
    holder.timer = setInterval(async () => {
      const kept = await post(url, `/v1/leases/${body.lease}/keepalive`).catch(() => ({ status: 404, body: {} }));
      // A holder that is told that its lock is broken gives it back.
      if (kept.status === 404 || kept.body.locks?.some((lock) => lock.broken)) {
        holder.lost = true;
        await holder.release();
      }
    }, 300);
    return holder;
  }

  async acquire(lock, options = {}) {
    const { status, body } = await post(this.url, `/v1/locks/${encodeURIComponent(lock)}/acquire`, { lease: this.lease, ...options });
    if (status !== 200) throw new Error(`${lock}: ${status} ${JSON.stringify(body)}`);
    return body;
  }

  /** Keeps its lease alive no longer: its agent is about to be killed. */
  forget() {
    clearInterval(this.timer);
  }

  async release() {
    this.forget();
    await fetch(`${this.url}/v1/leases/${this.lease}`, { method: "DELETE" }).catch(() => {});
  }
}
