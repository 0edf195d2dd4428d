/** What else work in an application asks for: files, dialogs, windows, keys, frames, papers, and finding out why something failed. */
import type { AppTask } from "./app.ts";

const list = <T>(count: number, each: (at: number) => T) =>
  Array.from({ length: count }, (_, at) => each(at));
const countries =
  "Austria Belgium Canada Denmark Estonia France Greece Hungary Iceland Japan Kenya Latvia Malta Norway Oman Peru Qatar Romania Spain Turkey".split(
    " ",
  );
const formFields = [
  "First name",
  "Last name",
  "Street",
  "Number",
  "Postcode",
  "City",
  "Phone",
  "Email",
  "Company",
  "Role",
  "Remark",
];

export const workPages: Record<string, string> = {
  upload: `<h1>Import</h1><label>Price list <input type="file" onchange="const f = this.files[0]; f.text().then((t) => { say.textContent = f.name + ' has ' + t.length + ' characters' })"></label><p role="status" id="say"></p>`,
  board: `<h1>Board</h1><style>section { display: inline-block; width: 200px; min-height: 160px; vertical-align: top; border: 1px solid }</style>${["To do", "Doing", "Done"].map((name, at) => `<section aria-label="${name}" ondragover="event.preventDefault()" ondrop="event.preventDefault(); this.append(document.getElementById(event.dataTransfer.getData('text'))); say.textContent = 'Moved to ${name}'"><h2>${name}</h2>${at === 0 ? list(3, (i) => `<div id="c${i}" role="button" draggable="true" ondragstart="event.dataTransfer.setData('text', this.id)">Card ${i}</div>`).join("") : ""}</section>`).join("")}<p role="status" id="say"></p>`,
  invoice: `<h1>Invoices</h1><a href="/app/invoice.pdf">Invoice 4711</a>`,
  refused: `<h1>Bank</h1><label>IBAN <input></label><button onclick="fetch('/app/api/bank', { method: 'POST', body: '{}' }).then((r) => { say.textContent = r.ok ? 'Saved' : 'Something went wrong' })">Save account</button><p role="status" id="say"></p>`,
  broken: `<h1>Basket</h1><button onclick="basket.items.push(1)">Check out</button><script>const basket = {}</script>`,
  missing: `<h1>Home</h1><button onclick="fetch('/app/api/prices').then((r) => r.json()).catch(() => { say.textContent = 'Prices are not available' })">Show prices</button><p role="status" id="say"></p>`,
  confirm: `<h1>Files</h1>${list(6, (i) => `<p>File ${i} <button onclick="if (confirm('Delete file ${i}?')) say.textContent = 'File ${i} was deleted'">Delete file ${i}</button></p>`).join("")}<p role="status" id="say"></p>`,
  prompt: `<h1>Album</h1><button onclick="const n = prompt('New name?', 'Album'); if (n) say.textContent = 'Renamed to ' + n">Rename</button><p role="status" id="say"></p>`,
  country: `<h1>Shipping</h1><label>Country <select onchange="say.textContent = 'Shipping to ' + this.value + ' costs 12 EUR'">${countries.map((name) => `<option>${name}`).join("")}</select></label><p role="status" id="say"></p>`,
  form: `<h1>Application</h1><form onsubmit="event.preventDefault(); say.textContent = [...this.querySelectorAll('input')].every((each) => each.value) ? 'Application received' : 'Something is missing'">${formFields.map((name) => `<p><label>${name} <input></label></p>`).join("")}<button>Apply</button></form><p role="status" id="say"></p>`,
  window: `<h1>Orders</h1><a href="/app/detail" target="_blank">Open order 12</a>`,
  detail: `<h1>Order 12</h1><button onclick="say.textContent = 'Order 12 was approved'">Approve</button><p role="status" id="say"></p>`,
  hover: `<h1>Shop</h1><style>#sub { display: none } #top:hover #sub { display: block }</style><div id="top"><button>Products</button><div id="sub"><button onclick="say.textContent = 'All teas'">Tea</button><button>Coffee</button></div></div><p role="status" id="say"></p>`,
  palette: `<h1>Console</h1><div role="dialog" aria-label="Commands" id="p" hidden><label>Command <input id="q" onkeydown="if (event.key === 'Enter') { p.hidden = true; say.textContent = q.value + ' was opened' }"></label></div><p role="status" id="say"></p><script>addEventListener('keydown', (e) => { if (e.ctrlKey && e.key === 'k') { e.preventDefault(); p.hidden = false; q.focus() } })</script>`,
  note: `<h1>Note</h1><div contenteditable role="textbox" aria-label="Note" style="min-height: 60px" oninput="say.textContent = this.textContent.length + ' characters'"></div><p role="status" id="say"></p>`,
  city: `<h1>Travel</h1><label>To <input id="q" role="combobox"></label><ul role="listbox" id="hits"></ul><p role="status" id="say"></p><script>let t; q.oninput = () => { clearTimeout(t); t = setTimeout(() => { hits.innerHTML = ['Berlin', 'Bern', 'Bergen'].filter((c) => c.toLowerCase().startsWith(q.value)).map((c) => '<li role=option onclick="say.textContent = \\'Going to ' + c + '\\'">' + c + '</li>').join('') }, 200) }</script>`,
  ledger: `<h1>Ledger</h1><table><thead><tr><th>Entry</th><th>Account</th><th>Sum</th><th></th></tr></thead><tbody>${list(2_000, (i) => `<tr><td>Entry ${i}</td><td>Account ${(i * 7) % 90}</td><td>${i * 3} EUR</td><td><button onclick="say.textContent = 'Entry ${i} was booked'">Book entry ${i}</button></td></tr>`).join("")}</tbody></table><p role="status" id="say"></p>`,
  filter: `<h1>Offers</h1><fieldset><legend>Size</legend>${["Small", "Large"].map((name) => `<label><input type="radio" name="size" onchange="draw()"> ${name}</label>`).join("")}</fieldset><label><input type="checkbox" id="stock" onchange="draw()"> In stock</label><p id="say">40 offers</p><script>function draw() { say.textContent = document.querySelector('[name=size]:checked') ? (stock.checked ? '7 offers' : '19 offers') : '40 offers' }</script>`,
  account: `<h1>Sign in</h1><form method="post" action="/app/session"><label>User <input name="user"></label><label>Password <input type="password" name="password"></label><button>Sign in</button></form>`,
  revenue: `<h1>Dashboard</h1><p id="say">Loading…</p><script>fetch('/app/api/revenue').then((r) => r.text()).then((t) => { say.textContent = t })</script>`,
  nested: `<h1>Outer</h1><iframe title="Middle" width="600" height="300" src="/app/nested-middle"></iframe>`,
  "nested-middle": `<iframe title="Inner" src="/app/nested-inner"></iframe>`,
  "nested-inner": `<button onclick="document.body.append('Seat 4 is booked')">Book seat 4</button>`,
  scroll: `<h1>Stream</h1><div id="list"></div><script>let n = 0; function more() { for (let i = 0; i < 30; i++) { const p = document.createElement('p'); p.style.height = '40px'; p.textContent = 'Message ' + ++n; list.append(p) } } more(); addEventListener('scroll', () => { if (innerHeight + scrollY > document.body.scrollHeight - 50 && n < 60) setTimeout(more, 200) })</script>`,
  undo: `<h1>Mail</h1><p id="mail">Offer from Miller <button onclick="mail.hidden = true; toast.hidden = false; setTimeout(() => { toast.hidden = true }, 8000)">Delete mail</button></p><div role="alert" id="toast" hidden>Mail deleted <button onclick="mail.hidden = false; toast.hidden = true; say.textContent = 'Mail is back'">Undo</button></div><p role="status" id="say"></p>`,
  pages: `<h1>Log</h1><table><tbody id="rows"></tbody></table><button onclick="setTimeout(() => show(++page), 300)">Next</button><p role="status" id="say"></p><script>let page = 0; function show(n) { rows.innerHTML = Array.from({ length: 15 }, (_, i) => '<tr><td>Line ' + (n * 15 + i + 1) + '</td><td><button onclick="say.textContent = \\'Line ' + (n * 15 + i + 1) + ' is kept\\'">Keep line ' + (n * 15 + i + 1) + '</button></td></tr>').join('') } show(0)</script>`,
  when: `<h1>Delivery</h1><label>Delivery <input type="date" onchange="say.textContent = 'Delivery on ' + this.value"></label><p role="status" id="say"></p>`,
};

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

export const workRoutes: Record<string, (request: Request) => Response | Promise<Response>> = {
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
};

export const workTasks: AppTask[] = [
  {
    name: "upload",
    path: "upload",
    steps: [{ on: '"Price list"', upload: "prices.txt", see: "prices.txt has 11 characters" }],
  },
  { name: "drag", path: "board", steps: [{ on: '"Card 1"', dragTo: '"Done"', see: "Moved to Done" }] },
  { name: "PDF", path: "invoice", steps: [{ on: 'link "Invoice 4711"', see: "99 EUR" }] },
  {
    name: "why a request failed",
    path: "refused",
    steps: [
      { on: 'button "Save account"', see: "Something went wrong" },
      { failedRequest: "bank", see: "the IBAN has 21 digits" },
    ],
  },
  {
    name: "why a button does nothing",
    path: "broken",
    steps: [
      { on: 'button "Check out"', see: "" },
      { console: true, see: "Cannot read properties of undefined" },
    ],
  },
  {
    name: "which request failed",
    path: "missing",
    steps: [
      { on: 'button "Show prices"', see: "Prices are not available" },
      { failedRequest: "prices", see: "asleep" },
    ],
  },
  {
    name: "confirm",
    path: "confirm",
    steps: [{ on: 'button "Delete file 3"', answer: "", see: "File 3 was deleted" }],
  },
  {
    name: "prompt",
    path: "prompt",
    steps: [{ on: 'button "Rename"', answer: "Holidays", see: "Renamed to Holidays" }],
  },
  {
    name: "drop-down list",
    path: "country",
    steps: [{ on: '"Country"', select: "Norway", see: "Shipping to Norway costs" }],
  },
  {
    name: "form of eleven fields",
    path: "form",
    steps: [
      { fill: formFields.map((name) => [`"${name}"`, `my ${name}`]), see: "" },
      { on: 'button "Apply"', see: "Application received" },
    ],
  },
  {
    name: "new window",
    path: "window",
    steps: [
      { on: 'link "Open order 12"', see: "/app/detail" },
      { on: 'button "Approve"', isInNewWindow: true, see: "Order 12 was approved" },
    ],
  },
  {
    name: "menu on hover",
    path: "hover",
    steps: [
      { on: 'button "Products"', hover: true, see: "Tea" },
      { on: 'button "Tea"', see: "All teas" },
    ],
  },
  {
    name: "keys",
    path: "palette",
    steps: [
      { press: "Control+k", see: "Command" },
      { on: '"Command"', type: "billing", see: "" },
      { press: "Enter", see: "billing was opened" },
    ],
  },
  { name: "rich text", path: "note", steps: [{ on: '"Note"', type: "Call Miller", see: "11 characters" }] },
  {
    name: "late suggestions",
    path: "city",
    steps: [
      { on: '"To"', type: "ber", see: "Bergen" },
      { on: 'option "Bern"', see: "Going to Bern" },
    ],
  },
  {
    name: "table of 2,000 rows",
    path: "ledger",
    steps: [{ on: 'button "Book entry 1777"', see: "Entry 1777 was booked" }],
  },
  {
    name: "filters",
    path: "filter",
    steps: [
      { on: 'radio "Large"', see: "19 offers" },
      { on: 'checkbox "In stock"', see: "7 offers" },
    ],
  },
  {
    name: "sign in on a server",
    path: "account",
    steps: [
      {
        fill: [
          ['"User"', "ann"],
          ['"Password"', "secret"],
        ],
        see: "",
      },
      { on: 'button "Sign in"', see: "Hello, ann" },
    ],
  },
  { name: "late dashboard", path: "revenue", steps: [{ see: "Revenue 1,234 EUR" }] },
  {
    name: "frame in a frame",
    path: "nested",
    steps: [{ on: 'button "Book seat 4"', see: "Seat 4 is booked" }],
  },
  { name: "endless scrolling", path: "scroll", steps: [{ press: "End", see: "Message 60" }] },
  {
    name: "undo",
    path: "undo",
    steps: [
      { on: 'button "Delete mail"', see: "Mail deleted" },
      { on: 'button "Undo"', see: "Mail is back" },
    ],
  },
  {
    name: "late paging",
    path: "pages",
    steps: [
      { on: 'button "Next"', see: "Line 30" },
      { on: 'button "Keep line 22"', see: "Line 22 is kept" },
    ],
  },
  {
    name: "date field",
    path: "when",
    steps: [{ on: '"Delivery"', type: "2026-05-03", see: "Delivery on 2026-05-03" }],
  },
];
