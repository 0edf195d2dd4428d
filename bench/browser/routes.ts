/** What the pages of the tasks ask their server for. */

/** The smallest paper that a viewer shows. */
function paper(text: string): string {
  const stream = `BT /F1 24 Tf 72 700 Td (${text}) Tj ET`;
  const objects = [
    "<</Type/Catalog/Pages 2 0 R>>",
    "<</Type/Pages/Kids[3 0 R]/Count 1>>",
    "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
    `<</Length ${stream.length}>>stream\n${stream}\nendstream`,
    "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
  ];
  let body = "%PDF-1.4\n";
  const offsets = objects.map((object, at) => {
    const offset = body.length;
    body += `${at + 1} 0 obj${object}endobj\n`;
    return offset;
  });
  const table = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  return `${body}xref\n0 6\n0000000000 65535 f \n${table}trailer<</Size 6/Root 1 0 R>>\nstartxref\n${body.length}\n%%EOF`;
}

const html = (body: string) =>
  new Response(`<!doctype html><title>Shop</title>${body}`, { headers: { "content-type": "text/html" } });

export const routes: Record<string, (request: Request) => Response | Promise<Response>> = {
  "/app/invoice.pdf": () =>
    new Response(paper("Invoice 4711: 99 EUR until May 3"), {
      headers: { "content-type": "application/pdf" },
    }),
  "/app/api/bank": () => Response.json({ problem: "the IBAN has 21 digits" }, { status: 422 }),
  "/app/api/prices": () => new Response("the price service is asleep", { status: 503 }),
  "/app/api/revenue": async () => {
    await Bun.sleep(300);
    return new Response("Revenue 1,234 EUR");
  },
  "/app/session": () => html(`<h1>Hello, ann</h1><a href="/app/orders-1">Orders</a>`),
  "/app/api/hits": ({ url }) => new Response(`<p>3 hits for ${new URL(url).searchParams.get("q")}</p>`),
  "/app/api/file": () => Response.json({}),
};
