// The dashboard in a real browser, with real agents: it is loaded, used, and the effect looked for, in the page and behind it.
// With HALLPASS_SCREENSHOTS=1 the pictures of docs/generated/dashboard are taken again.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { chromium } from "playwright-core";
import { Group, Holder, PATIENCE_MS, findBinary, post, until } from "./agents.mjs";

const PICTURES = fileURLToPath(new URL("../docs/generated/dashboard", import.meta.url));
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const MANY = 10_000;

const browserPath = process.env.CHROMIUM ?? "/usr/bin/chromium";
let skip = false;
let browser;
try {
  if (!findBinary()) throw new Error("there is no hallpass to test with; cargo build --package hallpass-cli");
  browser = await chromium.launch({
    executablePath: browserPath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--force-color-profile=srgb", "--font-render-hinting=none"],
  });
} catch (error) {
  skip = `SKIPPED: the dashboard was not tried in a browser: ${error.message.split("\n")[0]}; apt-get install chromium`;
  console.log(skip);
  if (process.env.CI) throw error;
}

describe("the dashboard", { skip }, () => {
  let context, page, errors, expected;

  after(() => browser?.close());

  beforeEach(async () => {
    await open({});
  });

  afterEach(async () => {
    await context.close();
    assert.deepEqual(errors, [], "the console is silent");
  });

  async function open(options) {
    await context?.close();
    context = await browser.newContext({ viewport: { width: 1180, height: 820 }, reducedMotion: "reduce", ...options });
    page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    [errors, expected] = [[], []];
    page.on("console", (message) => {
      const text = `${message.text()} ${message.location().url}`;
      if (["error", "warning"].includes(message.type()) && !expected.some((part) => part.test(text))) errors.push(text);
    });
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("request", (request) => {
      // Nothing is loaded from elsewhere.
      if (new URL(request.url()).hostname !== "127.0.0.1") errors.push(request.url());
    });
  }

  async function accessible(where) {
    // The policy of the page forbids scripts that are put into it; the debugger's are not.
    await page.evaluate(AXE);
    const found = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }));
    const violations = found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
    assert.deepEqual(violations, [], `accessible: ${where}`);
    assert.ok(found.passes.length > 10, "something was looked at");
  }

  async function picture(name, options = {}) {
    if (!process.env.HALLPASS_SCREENSHOTS) return;
    mkdirSync(PICTURES, { recursive: true });
    await page.screenshot({ path: join(PICTURES, `${name}.png`), ...options });
  }

  const row = (table, name) => page.locator(`#${table} tbody tr`, { has: page.getByText(name, { exact: true }) });
  const live = () => page.locator("#live.good").waitFor();

  describe("of a group", () => {
    let group, a, holders;

    // Every test has a group of its own: what one leaves behind, or fails at, is nothing to the next.
    beforeEach(async () => {
      holders = [];
      group = await Group.start(["a", "b", "c"]);
      a = group.url("a");
    });

    afterEach(async () => {
      // The page first: it would complain that its agent is gone.
      await context.close();
      holders.forEach((holder) => holder.forget());
      await group?.close();
    });

    async function holder(name) {
      const made = await Holder.lease(group.url(name));
      holders.push(made);
      return made;
    }

    /** Some locks that are held, and wanted by others. Returns the grant of deploy/web. */
    async function work() {
      const [one, two] = [await holder("a"), await holder("a")];
      const granted = await one.acquire("deploy/web");
      await one.acquire("reports/daily", { mode: "shared" });
      await (await holder("b")).acquire("deploy/db");
      for (const lock of ["deploy/web", "deploy/db"]) {
        two.acquire(lock).catch(() => {});
        await until(async () => (await (await fetch(`${a}/v1/locks/${encodeURIComponent(lock)}`)).json()).waiters > 0, `${lock} is waited for`);
      }
      return granted;
    }

    it("shows members, locks, holders and events", async () => {
      const granted = await work();
      await page.goto(a);
      await live();
      assert.match(await page.title(), /hallpass/);
      // They are sorted by their ids, which are drawn.
      const names = await page.locator("#members tbody td.name").allTextContents();
      assert.deepEqual(names.toSorted(), ["a (this one)", "b", "c"]);
      assert.equal(await page.locator("#members .badge.good").count(), 3);
      assert.match(await page.locator("#facts").innerText(), /Steward\s+[abc]\s+Voters\s+a, b, c/);
      const web = row("locks", "deploy/web");
      await web.getByText("held exclusive").waitFor();
      await until(async () => (await web.innerText()).includes(granted.fence), "the fence is shown");
      assert.match(await web.innerText(), /127\.0\.0\.1:\d+ on a/);
      await row("locks", "deploy/db").getByText("waited for").waitFor();
      assert.match(await row("locks", "deploy/db").innerText(), /member b/);
      await page.locator("#events li", { hasText: "view" }).first().waitFor();
      await page.getByLabel("grants and releases, too").check();
      await (await holder("a")).acquire("seen/live");
      await page.locator("#events li", { hasText: "seen/live" }).first().waitFor();
      await page.locator("#rates .rate").nth(3).waitFor();
      await accessible("overview");
    });

    it("is used by keyboard alone", async () => {
      await work();
      await page.goto(a);
      await live();
      await page.keyboard.press("Tab");
      assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
      await page.keyboard.press("/");
      assert.equal(await page.evaluate(() => document.activeElement.id), "search");
      await page.keyboard.type("deploy/web");
      await until(async () => (await page.locator("#locks tbody tr").count()) === 1, "the search is done");
      const label = () => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
      for (let tabs = 0; tabs < 10 && (await label()) !== "Break deploy/web"; tabs += 1) await page.keyboard.press("Tab");
      assert.equal(await label(), "Break deploy/web");
      await page.keyboard.press("Enter");
      await page.locator("#confirm[open]").waitFor();
      await accessible("a question");
      await page.keyboard.press("Escape");
      await page.locator("#confirm[open]").waitFor({ state: "detached" }).catch(() => {});
      assert.equal(await page.locator("#confirm").evaluate((dialog) => dialog.open), false);
      assert.equal(await label(), "Break deploy/web");
    });

    it("shows one lock's messages as they pass", async () => {
      const lock = encodeURIComponent("traced/ä b");
      // A protocol in which members ask each other: of a lock that another member is the home of, this one would see little.
      const socket = join(group.directory, "g", "a", "agent.sock");
      group.run("class", "set", "traced/", "carvalho-roucairol", "--socket", socket);
      await work();
      await page.goto(a);
      await live();
      await row("locks", "deploy/web").getByRole("link").click();
      await page.locator("#lock-title", { hasText: "deploy/web" }).waitFor();
      await page.locator("#lock-waiting", { hasText: "on a, exclusive" }).waitFor();
      await page.getByRole("link", { name: "All locks" }).click();
      // Messages that pass before the agent watches the lock are not shown.
      const watched = page.waitForResponse((answer) => new URL(answer.url()).pathname === `/v1/locks/${lock}/trace`);
      await page.goto(`${a}/#/lock/${lock}`);
      await page.locator("#lock-title", { hasText: "traced/ä b" }).waitFor();
      await watched;
      const steps = () => page.locator("#trace-text > li").allTextContents();
      await until(async () => {
        for (const name of ["a", "b"]) {
          const { body } = await post(group.url(name), `/v1/locks/${lock}/acquire`);
          await fetch(`${group.url(name)}/v1/leases/${body.lease}`, { method: "DELETE" });
        }
        const shown = (await steps()).join("; ");
        return shown.split(/REQUEST|REPLY/).length > 9 && /granted, fence/.test(shown) && /released/.test(shown);
      }, "messages, a grant and a release are shown");
      // The same steps are drawn: lines, names and bars have many colours where they meet.
      const colours = () => page.locator("#trace canvas").evaluate((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), seen = new Set();
        for (let at = 0; at < data.length; at += 4) seen.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
        return seen.size;
      });
      await until(async () => (await colours()) > 20, "the diagram is drawn");
      await page.getByText("The messages as text").click();
      await page.locator("#trace-text", { hasText: "to b" }).waitFor();
      const lines = (await page.locator("#trace-text").locator("> *").allTextContents()).reverse();
      const before = lines.filter((_, index) => index + 1 < lines.length && lines[index + 1].includes("granted"));
      assert.ok(before.length > 0 && before.every((line) => line.includes("REPLY")), `a REPLY before each grant: ${lines.join("; ")}`);
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByRole("button", { name: "Go on" }).waitFor();
      await accessible("one lock");
      await page.getByText("The messages as text").click();
      await picture("lock");
      // Another lock is not paused with it.
      await page.goto(`${a}/#/lock/deploy%2Fweb`);
      await page.getByRole("button", { name: "Pause" }).waitFor();
    });

    it("finds one of ten thousand locks, and pages through them", async () => {
      // So that there are others, too.
      await work();
      const many = await holder("a");
      const names = Array.from({ length: MANY }, (_, number) => `bulk/${String(number).padStart(5, "0")}`);
      const workers = Array.from({ length: 32 }, async () => {
        for (let name = names.pop(); name !== undefined; name = names.pop()) await many.acquire(name);
      });
      await Promise.all(workers);
      await page.goto(a);
      await live();
      const all = async () => Number((await page.locator("#page-text").innerText()).split(" of ")[1]?.replaceAll(",", ""));
      await until(async () => (await all()) > MANY, "all locks are counted");
      assert.equal(await page.locator("#locks tbody tr").count(), 50);
      await page.getByLabel("Search for locks").fill("bulk/");
      await until(async () => (await all()) === MANY, "the search is done");
      assert.equal(await page.locator("#locks tbody td.name").first().innerText(), "bulk/00000");
      await page.getByRole("button", { name: "Next" }).click();
      await row("locks", "bulk/00050").waitFor();
      assert.match(await page.locator("#page-text").innerText(), /^51 to 100 of 10,000$/);
      // Two clicks before the answer are one page.
      let answer;
      const clicked = new Promise((resolve) => (answer = resolve));
      await page.route("**/v1/locks?*", (route) => clicked.then(() => route.continue()));
      await page.getByRole("button", { name: "Next" }).dblclick();
      answer();
      await row("locks", "bulk/00100").waitFor();
      await page.unrouteAll({ behavior: "wait" });
      assert.match(await page.locator("#page-text").innerText(), /^101 to 150 of 10,000$/);
      await page.getByRole("button", { name: "Previous" }).click();
      await row("locks", "bulk/00050").waitFor();
      await page.getByLabel("Search for locks").fill("k/0777");
      await row("locks", "bulk/07779").waitFor();
      assert.equal(await page.locator("#locks tbody tr").count(), 10);
      await page.getByLabel("Search for locks").fill("no such lock");
      await page.getByText("No lock is like that.").waitFor();
    });

    it("breaks a lock", async () => {
      const victim = await holder("b");
      await victim.acquire("stuck/job");
      const waiting = (await holder("a")).acquire("stuck/job");
      await page.goto(a);
      await live();
      await page.getByLabel("Search for locks").fill("stuck");
      await row("locks", "stuck/job").getByRole("button", { name: "Break stuck/job" }).click();
      await page.getByRole("heading", { name: "Break stuck/job?" }).waitFor();
      await page.getByRole("button", { name: "Cancel" }).click();
      assert.equal(victim.lost, false, "to cancel is to change nothing");
      await row("locks", "stuck/job").getByRole("button", { name: "Break stuck/job" }).click();
      await page.getByRole("button", { name: "Break the lock" }).click();
      await page.getByText("stuck/job is broken.").waitFor();
      assert.ok(Number((await waiting).fence) > 0, "the next one got it");
      assert.equal(victim.lost, true);
      await row("locks", "stuck/job").getByText("held exclusive").waitFor();
    });

    for (const scheme of ["light", "dark"]) {
      for (const [size, viewport] of [["desktop", { width: 1180, height: 1120 }], ["phone", { width: 390, height: 1180 }]]) {
        it(`is readable: ${size}, ${scheme}`, async () => {
          await work();
          await open({ colorScheme: scheme, viewport });
          await page.goto(a);
          await live();
          await page.getByLabel("held or wanted here").check();
          await row("locks", "deploy/web").waitFor();
          await until(async () => (await page.locator("#locks tbody tr").count()) < 10, "only what is held or wanted is shown");
          const width = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(width <= viewport.width, `nothing is cut off: ${width} of ${viewport.width}`);
          await accessible(`${size}, ${scheme}`);
          if (process.env.HALLPASS_SCREENSHOTS) await busy(a, 12_000);
          await picture(`${size}-${scheme}`);
        });
      }
    }

    it("evicts a member", async () => {
      // The steward: this takes longest, since another one is elected, and waits for a whole session.
      const members = async (url) => (await (await fetch(`${url}/v1/members`)).json()).members;
      const victim = (await members(a)).find((member) => member.steward).name;
      const url = group.url(["a", "b"].find((name) => name !== victim));
      await page.goto(url);
      await live();
      await row("members", victim).getByRole("button", { name: `Evict ${victim}` }).click();
      await page.getByText("Ban it").click();
      await page.getByRole("button", { name: "Evict", exact: true }).click();
      await page.getByText(`${victim} is evicted.`).waitFor();
      await page.locator("#events li", { hasText: "evicted" }).waitFor();
      const left = await members(url);
      assert.ok(!left.some((member) => member.name === victim && member.state === "member"), JSON.stringify(left));
      await until(async () => (await page.locator("#members .badge.good").count()) === 2, "two are left");
    });
  });

  describe("of an agent that wants a token", () => {
    let group, token;

    before(async () => {
      group = await Group.alone(({ directory }) => ["--api-tokens", join(directory, "tokens.toml")].map((part, index, all) => {
        if (index === 0) {
          const probe = new Group();
          token = probe.run("token", "new", "--name", "me", "--rights", "inspect", "--file", all[1]).trim();
        }
        return part;
      }));
    });

    after(() => group?.close());

    it("asks for it, and says what it does not allow", async () => {
      // The browser itself tells of refusals.
      expected = [/status of 40[13]/];
      await page.goto(group.url("alone"));
      await page.getByRole("heading", { name: "This agent wants a token" }).waitFor();
      await accessible("the question for a token");
      await page.getByLabel("Token", { exact: false }).last().fill("wrong");
      await page.getByRole("button", { name: "Use it" }).click();
      await page.getByText("does not know this token").waitFor();
      await page.locator("#token").fill(token);
      await page.getByRole("button", { name: "Use it" }).click();
      await live();
      await page.locator("#members tbody tr").first().waitFor();
      await page.reload();
      await live();
      assert.equal(await page.getByRole("link", { name: "Metrics" }).count(), 0, "a link would carry no token");
      await page.goto(`${group.url("alone")}/#/lock/x`);
      await page.locator("#lock-break").click();
      await page.getByRole("button", { name: "Break the lock" }).click();
      await page.getByText("x is not broken: token 'me' has no right to break").waitFor();
    });
  });

  describe("of an agent that fails", () => {
    let group;

    before(async () => {
      group = await Group.alone();
    });

    after(() => group?.close());

    it("says so, and comes back with it", async () => {
      expected = [/ERR_|Failed to load resource|status of 503/];
      await page.goto(group.url("alone"));
      await live();
      await group.kill("alone");
      await page.getByText("The agent does not answer").waitFor();
      await page.locator("#live.bad").waitFor();
      await group.restart("alone");
      await live();
      await page.locator("#banner").waitFor({ state: "hidden" });
      await page.getByLabel("grants and releases, too").check();
      await until(async () => {
        // It may not listen again yet.
        const answer = await post(group.url("alone"), "/v1/locks/again/acquire").catch(() => null);
        if (!answer) return false;
        await fetch(`${group.url("alone")}/v1/leases/${answer.body.lease}`, { method: "DELETE" }).catch(() => {});
        return (await page.locator("#events li", { hasText: "again" }).count()) > 0;
      }, "events come again");
    });
  });

  /** Something to see in the sparklines. */
  async function busy(url, ms) {
    const end = Date.now() + ms;
    const worker = async (lock) => {
      while (Date.now() < end) {
        const { body } = await post(url, `/v1/locks/${lock}/acquire`);
        await fetch(`${url}/v1/leases/${body.lease}`, { method: "DELETE" });
        await new Promise((resolve) => setTimeout(resolve, 20 + Math.random() * 200 * (1 + Math.sin(Date.now() / 1500))));
      }
    };
    await Promise.all(["busy1", "busy2", "busy3"].map(worker));
  }
});
