/** The pages that every tool is shown. */
import { join } from "node:path";
import { morePages } from "./app.ts";
import { installDir } from "./contestants.ts";
import { allTasks } from "./figures.ts";
import { orders, ordersLate } from "./orders.ts";
import { routes } from "./routes.ts";

const small = `<title>Small</title><h1>Orders</h1><p>Some text with <a href="/other">a link</a>.</p>
<form><label>Name <input id="name"></label><label>City <input></label>
<button type="button" id="go" onclick="this.dataset.n = Number(this.dataset.n || 0) + 1">Press me</button></form>
<ul>${"<li>an entry</li>".repeat(10)}</ul>`;

const item = (i: number) =>
  `<li><a href="/item/${i}">Item ${i}</a> <span>$${i}.00</span> <button>Buy ${i}</button></li>`;

function tenMegabytes(): string {
  let body = "";
  for (let i = 0; body.length < 10_000_000; i++)
    body += `<section><h2>Part ${i}</h2><p>${"lorem ipsum dolor sit amet ".repeat(12)}</p><div><a href="/part/${i}">Read part ${i}</a><button>Save ${i}</button></div></section>`;
  return body;
}

export function servePages(): { url: string; stop(): Promise<void> } {
  const pages: Record<string, string> = {
    "/": small,
    "/orders": orders,
    "/orders-late": ordersLate,
    "/list": `<title>List</title><h1>Items</h1><ul>${Array.from({ length: 3_000 }, (_, i) => item(i)).join("")}</ul><footer>End</footer>`,
    "/big": `<title>Big</title>${tenMegabytes()}<footer>End</footer>`,
  };
  const taskPages = Object.fromEntries(allTasks.map(({ path, page }) => [path, page]));
  for (const [name, page] of Object.entries({ ...morePages, ...taskPages }))
    pages[`/app/${name}`] = `<title>Shop</title>${page}`;
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request) => {
      const { pathname } = new URL(request.url);
      if (pathname.startsWith("/npm/"))
        return new Response(Bun.file(join(installDir, "node_modules", pathname.slice("/npm/".length))));
      const route = routes[pathname];
      if (route) return route(request);
      const page = pages[pathname];
      return page === undefined
        ? new Response(null, { status: 204 })
        : new Response(`<!doctype html>${page}`, { headers: { "content-type": "text/html" } });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}
