/** The command line, as an agent uses it that has read nothing but the skill. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Site, startSite, testEnv, until } from "./helpers.ts";

const cli = join(import.meta.dir, "../src/cli.ts");

describe("the command line", () => {
  const dir = mkdtempSync(join(tmpdir(), "client-"));
  let site: Site;
  beforeAll(() => {
    site = startSite({
      "/": `<title>Shop</title><label>Name <input id="name"></label><label>Mail <input id="mail"></label>
        <button onclick="setTimeout(() => { out.textContent = 'Thanks ' + document.getElementById('name').value + ', ' + mail.value }, 100)">Order</button>
        <p id="out"></p><button onclick="fetch('/broken')">Check</button>`,
      "/broken": () => new Response("out of stock", { status: 422 }),
    });
  });
  afterAll(async () => {
    await run("close");
    await site.stop();
    rmSync(dir, { recursive: true, force: true });
  });

  async function run(...args: string[]): Promise<{ text: string; code: number }> {
    const child = Bun.spawn([process.execPath, cli, ...args], {
      env: { ...testEnv, XDG_RUNTIME_DIR: dir },
      stdout: "pipe",
      stderr: "pipe",
    });
    const [out, error] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    return { text: out + error, code: await child.exited };
  }
  const serverFile = () => join(dir, `browser-tool-${process.getuid!()}`, "server.json");
  const ref = (text: string, needle: string) =>
    /\[ref=(\w+)\]/.exec(text.split("\n").find((line) => line.includes(needle)) ?? "")![1]!;

  test("the skill names commands that there are, and its steps solve a task", async () => {
    const { text: skill } = await run("skill");
    const used = [...skill.matchAll(/browser-tool ([a-z]+)/g)].map((match) => match[1]!);
    const { text: help } = await run("--help");
    for (const name of used) expect(help).toContain(name);
    expect(skill.length).toBeLessThan(2_500);

    const opened = await run("open", site.url);
    expect(opened.text).toContain("Page Title: Shop");
    const [name, mail] = ['textbox "Name"', 'textbox "Mail"'].map((each) => ref(opened.text, each));
    expect((await run("fill", `${name}=Ann Lee`, `${mail}=ann@x.org`)).code).toBe(0);
    const ordered = await run("click", ref(opened.text, 'button "Order"'));
    expect(ordered.text).toContain("Thanks Ann Lee, ann@x.org");
    await run("click", "text=Check");
    const [, id] = /(r\d+) GET \S+\/broken 422/.exec((await run("network", "fetch", "4xx")).text)!;
    expect((await run("network", id!)).text).toContain("out of stock");
    expect((await run("type", "#name", "Bo", "--submit")).code).toBe(0);
    expect((await run("eval", "() => document.getElementById('name').value")).text).toContain('"Bo"');
    expect((await run("find", "Mail")).text).not.toContain('button "Check"');
    expect((await run("wait", "Thanks")).text).toContain("Nothing changed");
    const shot = await run("shot", join(dir, "page.png"), "--full-page");
    expect(shot.text).toContain(join(dir, "page.png"));
    expect(readFileSync(join(dir, "page.png")).subarray(1, 4).toString()).toBe("PNG");
  }, 60_000);

  test("mistakes end with 1 and say what to do; sessions are apart; the server's file is the user's alone", async () => {
    const missed = await run("click", "e9999");
    expect([missed.code, missed.text]).toEqual([1, expect.stringContaining("Try capturing new snapshot")]);
    expect((await run("fill", "nothing")).text).toContain("fill takes target=text");
    const refused = await run("open", site.url, "--profile", join(dir, "p"));
    expect(refused.text).toContain("browser-tool close first");
    expect((await run("eval", "() => location.href", "--session", "other")).text).toContain("about:blank");
    expect((await run("close", "--session", "other")).text).toContain("has ended");
    expect(statSync(serverFile()).mode & 0o777).toBe(0o600);
  }, 60_000);

  test("close ends the server and its browser", async () => {
    const { pid } = JSON.parse(readFileSync(serverFile(), "utf8")) as { pid: number };
    expect((await run("close")).text).toContain("The browser is closed.");
    await until("its end", () => !existsSync(`/proc/${pid}`));
    expect((await run("close")).text).toContain("No browser is open.");
  }, 30_000);
});

test("the example of the library runs", async () => {
  const site = startSite({
    "/": (request) => {
      const user = /user=(\w+)/.exec(request.headers.get("cookie") ?? "")?.[1];
      const prices = user
        ? `<p>Price for ${user}: ${user.length}</p>`
        : "<form action='/in'><label>User <input name=u></label></form>";
      return new Response(`<!doctype html>${prices}`, { headers: { "content-type": "text/html" } });
    },
    "/in": (request) => {
      const user = new URL(request.url).searchParams.get("u");
      return new Response(null, { status: 302, headers: { location: "/", "set-cookie": `user=${user}` } });
    },
  });
  const example = join(import.meta.dir, "../examples/prices.ts");
  const child = Bun.spawn([process.execPath, example, site.url], { env: testEnv, stdout: "pipe" });
  const said = await new Response(child.stdout).text();
  expect(said).toMatch(/Price for ann: 3[\s\S]*---[\s\S]*Price for bob: 3[\s\S]*---\nuser=ann/);
  await site.stop();
}, 60_000);
