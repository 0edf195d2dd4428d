/** A small shop's back office: the things that real applications make an agent do, a page and a task for each. */
import { click, enter, press, type Step } from "./task.ts";

export interface AppTask {
  name: string;
  path: string;
  page: string;
  steps: Step[];
}

/** Tasks by their names, each with a page of its own. */
export const tasksOf = (given: Record<string, Pick<AppTask, "page" | "steps">>, prefix = ""): AppTask[] =>
  Object.entries(given).map(([name, { page, steps }]) => {
    const path = prefix + name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
    return { name, path, page, steps };
  });

const list = (count: number, each: (at: number) => string) =>
  Array.from({ length: count }, (_, at) => each(at)).join("");
const say = '<p role="status" id="say"></p>';
const later = (code: string, ms: number) => `setTimeout(() => { ${code} }, ${ms})`;

const orders = (page: number) =>
  `<h1>Orders</h1><nav>${list(5, (at) => `<a href="/app/orders-${at + 1}">Page ${at + 1}</a> `)}<a href="/app/orders-${page + 1}">Next page</a></nav><table><thead><tr><th>Order</th><th>Customer</th><th>Sum</th><th>Action</th></tr></thead><tbody>${list(20, (at) => orderRow(page * 20 + at))}</tbody></table>${say}`;
const orderRow = (id: number) =>
  `<tr><td>Order ${id}</td><td>Customer ${(id * 7) % 40}</td><td>${id * 3} EUR</td><td><button onclick="say.textContent='Order ${id} was shipped'">Ship order ${id}</button></td></tr>`;

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

export const appTasks = tasksOf({
  login: {
    page: `<h1>Sign in</h1><form onsubmit="event.preventDefault(); ${later("document.body.innerHTML = '<h1>Welcome, ann</h1><a href=/app/orders-1>Orders</a>'", 250)}"><label>User <input></label><label>Password <input type="password"></label><button>Sign in</button></form>`,
    steps: [enter('"User"', "ann"), enter('"Password"', "secret"), click('button "Sign in"', "Welcome, ann")],
  },
  paging: {
    page: orders(1),
    steps: [click('link "Next page"', "Order 59"), click('button "Ship order 47"', "Order 47 was shipped")],
  },
  modal: {
    page: `<h1>Customers</h1><ul>${list(30, (i) => `<li>Customer ${i} <button onclick="d.showModal()">Delete customer ${i}</button></li>`)}</ul><dialog id="d" aria-label="Really delete?"><label>Type DELETE <input oninput="c.disabled = this.value !== 'DELETE'"></label><button id="c" disabled onclick="d.close(); ${later("say.textContent = 'Customer deleted'", 300)}">Confirm</button></dialog>${say}`,
    steps: [
      click('button "Delete customer 17"', "Really delete?"),
      enter('"Type DELETE"', "DELETE"),
      click('button "Confirm"', "Customer deleted"),
    ],
  },
  date: {
    page: `<h1>Delivery</h1><button onclick="cal.hidden = false">Choose a date</button><div id="cal" hidden><button onclick="show(month - 1)">Previous month</button><span id="m"></span><button onclick="show(month + 1)">Next month</button><div id="days"></div></div><p id="say"></p><script>let month = 1; function show(n) { month = n; const name = new Date(2026, n - 1, 1).toLocaleString('en', { month: 'long' }); m.textContent = name + ' 2026'; days.innerHTML = Array.from({ length: new Date(2026, n, 0).getDate() }, (_, i) => '<button onclick="cal.hidden = true; say.textContent=\\'Delivery on ' + name + ' ' + (i + 1) + '\\'">' + name + ' ' + (i + 1) + '</button>').join('') } show(1)</script>`,
    steps: [
      click('button "Choose a date"', "January 2026"),
      click('button "Next month"', "February 2026"),
      click('button "Next month"', "March 2026"),
      click('button "March 14"', "Delivery on March 14"),
    ],
  },
  frame: {
    page: `<h1>Checkout</h1><p>Total 40 EUR</p><iframe title="Payment" srcdoc="<label>Coupon <input></label><button onclick=&quot;say.textContent='Coupon SAVE10 applied'&quot;>Apply</button><p id=say></p>"></iframe>`,
    steps: [enter('"Coupon"', "SAVE10"), click('button "Apply"', "Coupon SAVE10 applied")],
  },
  "shadow root": {
    page: `<h1>Product</h1><x-basket></x-basket><script>customElements.define('x-basket', class extends HTMLElement { constructor() { super(); const root = this.attachShadow({ mode: 'open' }); root.innerHTML = '<button>Add to basket</button><p>Basket: 0</p>'; root.querySelector('button').onclick = () => { root.querySelector('p').textContent = 'Basket: 1' } } })</script>`,
    steps: [click('button "Add to basket"', "Basket: 1")],
  },
  "closed shadow root": {
    page: `<h1>Rating</h1><x-stars></x-stars><script>customElements.define('x-stars', class extends HTMLElement { constructor() { super(); const root = this.attachShadow({ mode: 'closed' }); root.innerHTML = '<button>Four stars</button><p></p>'; root.querySelector('button').onclick = () => { root.querySelector('p').textContent = 'Thanks for 4 stars' } } })</script>`,
    steps: [click('button "Four stars"', "4 stars")],
  },
  "endless list": {
    page: `<h1>Feed</h1><ul id="list"></ul><button onclick="more()">Load more</button><script>let n = 0; function more() { for (let i = 0; i < 40; i++) { const li = document.createElement('li'); const at = ++n; li.innerHTML = 'Post ' + at + ' by user ' + (at % 9) + ' <button>Like post ' + at + '</button>'; li.querySelector('button').onclick = () => { li.append(' Liked post ' + at) }; list.append(li) } } more()</script>`,
    steps: [
      click('button "Load more"', "Post 80"),
      click('button "Load more"', "Post 120"),
      click('button "Like post 113"', "Liked post 113"),
    ],
  },
  "late search": {
    page: `<h1>Products</h1><label>Search <input id="q"></label><p id="count"></p><ul id="hits"></ul><script>const all = Array.from({ length: 300 }, (_, i) => ['Tea', 'Coffee', 'Cup', 'Pot', 'Spoon'][i % 5] + ' no. ' + i); let t; function draw() { const found = all.filter((each) => each.toLowerCase().includes(q.value.toLowerCase())); count.textContent = found.length + ' products'; hits.innerHTML = found.slice(0, 50).map((each) => '<li>' + each + ' <button>Buy ' + each + '</button></li>').join('') } draw(); q.oninput = () => { clearTimeout(t); t = setTimeout(draw, 250) }; hits.onclick = (e) => { if (e.target.tagName === 'BUTTON') count.textContent = 'Bought ' + e.target.textContent.slice(4) }</script>`,
    steps: [
      enter('"Search"', "pot no. 28", "3 products"),
      click('button "Buy Pot no. 283"', "Bought Pot no. 283"),
    ],
  },
  wizard: {
    page: `<h1>New customer</h1><div id="w"></div><script>const steps = [['Company', 'Step 1 of 3'], ['Tax number', 'Step 2 of 3'], ['Contact', 'Step 3 of 3']]; let at = 0; function draw() { w.innerHTML = at < 3 ? '<p>' + steps[at][1] + '</p><label>' + steps[at][0] + ' <input></label><button onclick="at++; setTimeout(draw, 150)">Continue</button>' : '<p>Customer was created</p>' } draw()</script>`,
    steps: [
      enter('"Company"', "Miller"),
      click('button "Continue"', "Step 2 of 3"),
      enter('"Tax number"', "123"),
      click('button "Continue"', "Step 3 of 3"),
      enter('"Contact"', "Ann"),
      click('button "Continue"', "Customer was created"),
    ],
  },
  "to-do list": {
    page: `<h1>To do</h1><label>New entry <input id="e" onkeyup="if (event.key === 'Enter') add()"></label><button onclick="add()">Add</button><ul id="l"></ul><script>function add() { const li = document.createElement('li'); li.innerHTML = '<label><input type=checkbox> ' + e.value + '</label> <button onclick="this.parentNode.remove(); s.textContent = \\'Removed\\'">Remove ' + e.value + '</button>'; l.append(li); e.value = '' }</script><p id="s"></p>`,
    steps: [
      enter('"New entry"', "milk"),
      click('button "Add"', "Remove milk"),
      click('button "Remove milk"', "Removed"),
    ],
  },
  settings: {
    page: `<h1>Settings</h1><fieldset><legend>Mails</legend>${["Orders", "Invoices", "Offers", "News"].map((name) => `<label><input type="checkbox"> ${name}</label>`).join("")}</fieldset><label>Language <select><option>English<option>German<option>French</select></label><button onclick="${later("say.textContent = 'Settings were saved'", 200)}">Save settings</button>${say}`,
    steps: [
      click('checkbox "Invoices"', '"Invoices" [checked]'),
      click('checkbox "News"', '"News" [checked]'),
      click('button "Save settings"', "Settings were saved"),
    ],
  },
  chat: {
    page: `<h1>Support</h1><div id="log"><p>Agent: how can I help?</p></div><label>Message <input id="m"></label><button onclick="const p = document.createElement('p'); p.textContent = 'You: ' + m.value; log.append(p); ${later("log.insertAdjacentHTML('beforeend', '<p>Agent: it is on its way</p>')", 400)}">Send</button>`,
    steps: [enter('"Message"', "where is my order"), click('button "Send"', "it is on its way")],
  },
  menu: {
    page: `<h1>Reports</h1><button onclick="u.hidden = !u.hidden" aria-haspopup="menu">Export</button><ul id="u" role="menu" hidden><li role="menuitem" tabindex="0" onclick="u.hidden = true; ${later("say.textContent = 'Export as CSV is ready'", 300)}">As CSV</li><li role="menuitem" tabindex="0">As PDF</li></ul>${say}`,
    steps: [click('button "Export"', "As CSV"), click('menuitem "As CSV"', "CSV is ready")],
  },
  tabs: {
    page: `<h1>Account</h1><div role="tablist">${["Profile", "Billing", "Team"].map((name) => `<button role="tab" onclick="p.innerHTML = '<h2>${name}</h2><button onclick=&quot;p.append(\\'Invited\\')&quot;>Invite to ${name}</button>'">${name}</button>`).join("")}</div><div role="tabpanel" id="p"><h2>Profile</h2></div>`,
    steps: [click('tab "Team"', "Invite to Team"), click('button "Invite to Team"', "Invited")],
  },
  toast: {
    page: `<h1>Backup</h1><button onclick="const t = document.createElement('div'); t.setAttribute('role', 'alert'); t.textContent = 'Backup 7 was made'; document.body.append(t); setTimeout(() => t.remove(), 900)">Make a backup</button>`,
    steps: [click('button "Make a backup"', "Backup 7 was made")],
  },
  upload: {
    page: `<h1>Import</h1><label>Price list <input type="file" onchange="const f = this.files[0]; f.text().then((t) => { say.textContent = f.name + ' has ' + t.length + ' characters' })"></label>${say}`,
    steps: [{ on: '"Price list"', upload: "prices.txt", see: "prices.txt has 11 characters" }],
  },
  drag: {
    page: `<h1>Board</h1><style>section { display: inline-block; width: 200px; min-height: 160px; vertical-align: top; border: 1px solid }</style>${["To do", "Doing", "Done"].map((name, at) => `<section aria-label="${name}" ondragover="event.preventDefault()" ondrop="event.preventDefault(); this.append(document.getElementById(event.dataTransfer.getData('text'))); say.textContent = 'Moved to ${name}'"><h2>${name}</h2>${at === 0 ? list(3, (i) => `<div id="c${i}" role="button" draggable="true" ondragstart="event.dataTransfer.setData('text', this.id)">Card ${i}</div>`) : ""}</section>`).join("")}${say}`,
    steps: [{ on: '"Card 1"', dragTo: '"Done"', see: "Moved to Done" }],
  },
  PDF: {
    page: `<h1>Invoices</h1><a href="/app/invoice.pdf">Invoice 4711</a>`,
    steps: [click('link "Invoice 4711"', "99 EUR")],
  },
  "why a request failed": {
    page: `<h1>Bank</h1><label>IBAN <input></label><button onclick="fetch('/app/api/bank', { method: 'POST', body: '{}' }).then((r) => { say.textContent = r.ok ? 'Saved' : 'Something went wrong' })">Save account</button>${say}`,
    steps: [
      click('button "Save account"', "Something went wrong"),
      { failedRequest: "bank", see: "the IBAN has 21 digits" },
    ],
  },
  "why a button does nothing": {
    page: `<h1>Basket</h1><button onclick="basket.items.push(1)">Check out</button><script>const basket = {}</script>`,
    steps: [click('button "Check out"', ""), { console: true, see: "Cannot read properties of undefined" }],
  },
  "which request failed": {
    page: `<h1>Home</h1><button onclick="fetch('/app/api/prices').then((r) => r.json()).catch(() => { say.textContent = 'Prices are not available' })">Show prices</button>${say}`,
    steps: [
      click('button "Show prices"', "Prices are not available"),
      { failedRequest: "prices", see: "asleep" },
    ],
  },
  confirm: {
    page: `<h1>Files</h1>${list(6, (i) => `<p>File ${i} <button onclick="if (confirm('Delete file ${i}?')) say.textContent = 'File ${i} was deleted'">Delete file ${i}</button></p>`)}${say}`,
    steps: [{ on: 'button "Delete file 3"', answer: "", see: "File 3 was deleted" }],
  },
  prompt: {
    page: `<h1>Album</h1><button onclick="const n = prompt('New name?', 'Album'); if (n) say.textContent = 'Renamed to ' + n">Rename</button>${say}`,
    steps: [{ on: 'button "Rename"', answer: "Holidays", see: "Renamed to Holidays" }],
  },
  "drop-down list": {
    page: `<h1>Shipping</h1><label>Country <select onchange="say.textContent = 'Shipping to ' + this.value + ' costs 12 EUR'">${countries.map((name) => `<option>${name}`).join("")}</select></label>${say}`,
    steps: [{ on: '"Country"', select: "Norway", see: "Shipping to Norway costs" }],
  },
  "form of eleven fields": {
    page: `<h1>Application</h1><form onsubmit="event.preventDefault(); say.textContent = [...this.querySelectorAll('input')].every((each) => each.value) ? 'Application received' : 'Something is missing'">${formFields.map((name) => `<p><label>${name} <input></label></p>`).join("")}<button>Apply</button></form>${say}`,
    steps: [
      { fill: formFields.map((name) => [`"${name}"`, `my ${name}`]), see: "" },
      click('button "Apply"', "Application received"),
    ],
  },
  "new window": {
    page: `<h1>Orders</h1><a href="/app/detail" target="_blank">Open order 12</a>`,
    steps: [
      click('link "Open order 12"', "/app/detail"),
      { on: 'button "Approve"', isInNewWindow: true, see: "Order 12 was approved" },
    ],
  },
  "menu on hover": {
    page: `<h1>Shop</h1><style>#sub { display: none } #top:hover #sub { display: block }</style><div id="top"><button>Products</button><div id="sub"><button onclick="say.textContent = 'All teas'">Tea</button><button>Coffee</button></div></div>${say}`,
    steps: [{ on: 'button "Products"', hover: true, see: "Tea" }, click('button "Tea"', "All teas")],
  },
  keys: {
    page: `<h1>Console</h1><div role="dialog" aria-label="Commands" id="p" hidden><label>Command <input id="q" onkeydown="if (event.key === 'Enter') { p.hidden = true; say.textContent = q.value + ' was opened' }"></label></div>${say}<script>addEventListener('keydown', (e) => { if (e.ctrlKey && e.key === 'k') { e.preventDefault(); p.hidden = false; q.focus() } })</script>`,
    steps: [
      press("Control+k", "Command"),
      enter('"Command"', "billing"),
      press("Enter", "billing was opened"),
    ],
  },
  "rich text": {
    page: `<h1>Note</h1><div contenteditable role="textbox" aria-label="Note" style="min-height: 60px" oninput="say.textContent = this.textContent.length + ' characters'"></div>${say}`,
    steps: [enter('"Note"', "Call Miller", "11 characters")],
  },
  "late suggestions": {
    page: `<h1>Travel</h1><label>To <input id="q" role="combobox"></label><ul role="listbox" id="hits"></ul>${say}<script>let t; q.oninput = () => { clearTimeout(t); t = setTimeout(() => { hits.innerHTML = ['Berlin', 'Bern', 'Bergen'].filter((c) => c.toLowerCase().startsWith(q.value)).map((c) => '<li role=option onclick="say.textContent = \\'Going to ' + c + '\\'">' + c + '</li>').join('') }, 200) }</script>`,
    steps: [enter('"To"', "ber", "Bergen"), click('option "Bern"', "Going to Bern")],
  },
  "table of 2,000 rows": {
    page: `<h1>Ledger</h1><table><thead><tr><th>Entry</th><th>Account</th><th>Sum</th><th></th></tr></thead><tbody>${list(2_000, (i) => `<tr><td>Entry ${i}</td><td>Account ${(i * 7) % 90}</td><td>${i * 3} EUR</td><td><button onclick="say.textContent = 'Entry ${i} was booked'">Book entry ${i}</button></td></tr>`)}</tbody></table>${say}`,
    steps: [click('button "Book entry 1777"', "Entry 1777 was booked")],
  },
  filters: {
    page: `<h1>Offers</h1><fieldset><legend>Size</legend>${["Small", "Large"].map((name) => `<label><input type="radio" name="size" onchange="draw()"> ${name}</label>`).join("")}</fieldset><label><input type="checkbox" id="stock" onchange="draw()"> In stock</label><p id="say">40 offers</p><script>function draw() { say.textContent = document.querySelector('[name=size]:checked') ? (stock.checked ? '7 offers' : '19 offers') : '40 offers' }</script>`,
    steps: [click('radio "Large"', "19 offers"), click('checkbox "In stock"', "7 offers")],
  },
  "sign in on a server": {
    page: `<h1>Sign in</h1><form method="post" action="/app/session"><label>User <input name="user"></label><label>Password <input type="password" name="password"></label><button>Sign in</button></form>`,
    steps: [
      {
        fill: [
          ['"User"', "ann"],
          ['"Password"', "secret"],
        ],
        see: "",
      },
      click('button "Sign in"', "Hello, ann"),
    ],
  },
  "late dashboard": {
    page: `<h1>Dashboard</h1><p id="say">Loading…</p><script>fetch('/app/api/revenue').then((r) => r.text()).then((t) => { say.textContent = t })</script>`,
    steps: [{ see: "Revenue 1,234 EUR" }],
  },
  "frame in a frame": {
    page: `<h1>Outer</h1><iframe title="Middle" width="600" height="300" src="/app/nested-middle"></iframe>`,
    steps: [click('button "Book seat 4"', "Seat 4 is booked")],
  },
  "endless scrolling": {
    page: `<h1>Stream</h1><div id="list"></div><script>let n = 0; function more() { for (let i = 0; i < 30; i++) { const p = document.createElement('p'); p.style.height = '40px'; p.textContent = 'Message ' + ++n; list.append(p) } } more(); addEventListener('scroll', () => { if (innerHeight + scrollY > document.body.scrollHeight - 50 && n < 60) setTimeout(more, 200) })</script>`,
    steps: [press("End", "Message 60")],
  },
  undo: {
    page: `<h1>Mail</h1><p id="mail">Offer from Miller <button onclick="mail.hidden = true; toast.hidden = false; setTimeout(() => { toast.hidden = true }, 8000)">Delete mail</button></p><div role="alert" id="toast" hidden>Mail deleted <button onclick="mail.hidden = false; toast.hidden = true; say.textContent = 'Mail is back'">Undo</button></div>${say}`,
    steps: [click('button "Delete mail"', "Mail deleted"), click('button "Undo"', "Mail is back")],
  },
  "late paging": {
    page: `<h1>Log</h1><table><tbody id="rows"></tbody></table><button onclick="setTimeout(() => show(++page), 300)">Next</button>${say}<script>let page = 0; function show(n) { rows.innerHTML = Array.from({ length: 15 }, (_, i) => '<tr><td>Line ' + (n * 15 + i + 1) + '</td><td><button onclick="say.textContent = \\'Line ' + (n * 15 + i + 1) + ' is kept\\'">Keep line ' + (n * 15 + i + 1) + '</button></td></tr>').join('') } show(0)</script>`,
    steps: [click('button "Next"', "Line 30"), click('button "Keep line 22"', "Line 22 is kept")],
  },
  "date field": {
    page: `<h1>Delivery</h1><label>Delivery <input type="date" onchange="say.textContent = 'Delivery on ' + this.value"></label>${say}`,
    steps: [enter('"Delivery"', "2026-05-03", "Delivery on 2026-05-03")],
  },
});

/** Where the tasks lead to. */
export const morePages: Record<string, string> = {
  ...Object.fromEntries([1, 2, 3, 4, 5, 6].map((page) => [`orders-${page}`, orders(page)])),
  detail: `<h1>Order 12</h1><button onclick="say.textContent = 'Order 12 was approved'">Approve</button>${say}`,
  "nested-middle": `<iframe title="Inner" src="/app/nested-inner"></iframe>`,
  "nested-inner": `<button onclick="document.body.append('Seat 4 is booked')">Book seat 4</button>`,
};
