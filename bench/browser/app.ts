/** A small shop's back office: the things that real applications make an agent do, and a task for each. */
import type { Step } from "./task.ts";

export interface AppTask {
  name: string;
  path: string;
  steps: Step[];
}

const rows = (from: number, to: number) =>
  Array.from(
    { length: to - from },
    (_, i) =>
      `<tr><td>Order ${from + i}</td><td>Customer ${((from + i) * 7) % 40}</td><td>${(from + i) * 3} EUR</td><td><button onclick="say.textContent='Order ${from + i} was shipped'">Ship order ${from + i}</button></td></tr>`,
  ).join("");

const orders = (page: number) =>
  `<h1>Orders</h1><nav>${[1, 2, 3, 4, 5].map((n) => `<a href="/app/orders-${n}">Page ${n}</a> `).join("")}<a href="/app/orders-${page + 1}">Next page</a></nav><table><thead><tr><th>Order</th><th>Customer</th><th>Sum</th><th>Action</th></tr></thead><tbody>${rows(page * 20, page * 20 + 20)}</tbody></table><p role="status" id="say"></p>`;

const later = (code: string, ms: number) => `setTimeout(() => { ${code} }, ${ms})`;

export const appPages: Record<string, string> = {
  login: `<h1>Sign in</h1><form onsubmit="event.preventDefault(); ${later("document.body.innerHTML = '<h1>Welcome, ann</h1><a href=/app/orders-1>Orders</a>'", 250)}"><label>User <input></label><label>Password <input type="password"></label><button>Sign in</button></form>`,
  ...Object.fromEntries([1, 2, 3, 4, 5, 6].map((page) => [`orders-${page}`, orders(page)])),
  modal: `<h1>Customers</h1><ul>${Array.from({ length: 30 }, (_, i) => `<li>Customer ${i} <button onclick="d.showModal()">Delete customer ${i}</button></li>`).join("")}</ul><dialog id="d" aria-label="Really delete?"><label>Type DELETE <input oninput="c.disabled = this.value !== 'DELETE'"></label><button id="c" disabled onclick="d.close(); ${later("say.textContent = 'Customer deleted'", 300)}">Confirm</button></dialog><p role="status" id="say"></p>`,
  date: `<h1>Delivery</h1><button onclick="cal.hidden = false">Choose a date</button><div id="cal" hidden><button onclick="show(month - 1)">Previous month</button><span id="m"></span><button onclick="show(month + 1)">Next month</button><div id="days"></div></div><p id="say"></p><script>let month = 1; function show(n) { month = n; const name = new Date(2026, n - 1, 1).toLocaleString('en', { month: 'long' }); m.textContent = name + ' 2026'; days.innerHTML = Array.from({ length: new Date(2026, n, 0).getDate() }, (_, i) => '<button onclick="cal.hidden = true; say.textContent=\\'Delivery on ' + name + ' ' + (i + 1) + '\\'">' + name + ' ' + (i + 1) + '</button>').join('') } show(1)</script>`,
  frame: `<h1>Checkout</h1><p>Total 40 EUR</p><iframe title="Payment" srcdoc="<label>Coupon <input></label><button onclick=&quot;say.textContent='Coupon SAVE10 applied'&quot;>Apply</button><p id=say></p>"></iframe>`,
  shadow: `<h1>Product</h1><x-basket></x-basket><script>customElements.define('x-basket', class extends HTMLElement { constructor() { super(); const root = this.attachShadow({ mode: 'open' }); root.innerHTML = '<button>Add to basket</button><p>Basket: 0</p>'; root.querySelector('button').onclick = () => { root.querySelector('p').textContent = 'Basket: 1' } } })</script>`,
  closed: `<h1>Rating</h1><x-stars></x-stars><script>customElements.define('x-stars', class extends HTMLElement { constructor() { super(); const root = this.attachShadow({ mode: 'closed' }); root.innerHTML = '<button>Four stars</button><p></p>'; root.querySelector('button').onclick = () => { root.querySelector('p').textContent = 'Thanks for 4 stars' } } })</script>`,
  endless: `<h1>Feed</h1><ul id="list"></ul><button onclick="more()">Load more</button><script>let n = 0; function more() { for (let i = 0; i < 40; i++) { const li = document.createElement('li'); const at = ++n; li.innerHTML = 'Post ' + at + ' by user ' + (at % 9) + ' <button>Like post ' + at + '</button>'; li.querySelector('button').onclick = () => { li.append(' Liked post ' + at) }; list.append(li) } } more()</script>`,
  search: `<h1>Products</h1><label>Search <input id="q"></label><p id="count"></p><ul id="hits"></ul><script>const all = Array.from({ length: 300 }, (_, i) => ['Tea', 'Coffee', 'Cup', 'Pot', 'Spoon'][i % 5] + ' no. ' + i); let t; function draw() { const found = all.filter((each) => each.toLowerCase().includes(q.value.toLowerCase())); count.textContent = found.length + ' products'; hits.innerHTML = found.slice(0, 50).map((each) => '<li>' + each + ' <button>Buy ' + each + '</button></li>').join('') } draw(); q.oninput = () => { clearTimeout(t); t = setTimeout(draw, 250) }; hits.onclick = (e) => { if (e.target.tagName === 'BUTTON') count.textContent = 'Bought ' + e.target.textContent.slice(4) }</script>`,
  wizard: `<h1>New customer</h1><div id="w"></div><script>const steps = [['Company', 'Step 1 of 3'], ['Tax number', 'Step 2 of 3'], ['Contact', 'Step 3 of 3']]; let at = 0; function draw() { w.innerHTML = at < 3 ? '<p>' + steps[at][1] + '</p><label>' + steps[at][0] + ' <input></label><button onclick="at++; setTimeout(draw, 150)">Continue</button>' : '<p>Customer was created</p>' } draw()</script>`,
  todo: `<h1>To do</h1><label>New entry <input id="e" onkeyup="if (event.key === 'Enter') add()"></label><button onclick="add()">Add</button><ul id="l"></ul><script>function add() { const li = document.createElement('li'); li.innerHTML = '<label><input type=checkbox> ' + e.value + '</label> <button onclick="this.parentNode.remove(); s.textContent = \\'Removed\\'">Remove ' + e.value + '</button>'; l.append(li); e.value = '' }</script><p id="s"></p>`,
  settings: `<h1>Settings</h1><fieldset><legend>Mails</legend>${["Orders", "Invoices", "Offers", "News"].map((name) => `<label><input type="checkbox"> ${name}</label>`).join("")}</fieldset><label>Language <select><option>English<option>German<option>French</select></label><button onclick="${later("say.textContent = 'Settings were saved'", 200)}">Save settings</button><p role="status" id="say"></p>`,
  chat: `<h1>Support</h1><div id="log"><p>Agent: how can I help?</p></div><label>Message <input id="m"></label><button onclick="const p = document.createElement('p'); p.textContent = 'You: ' + m.value; log.append(p); ${later("log.insertAdjacentHTML('beforeend', '<p>Agent: it is on its way</p>')", 400)}">Send</button>`,
  menu: `<h1>Reports</h1><button onclick="u.hidden = !u.hidden" aria-haspopup="menu">Export</button><ul id="u" role="menu" hidden><li role="menuitem" tabindex="0" onclick="u.hidden = true; ${later("say.textContent = 'Export as CSV is ready'", 300)}">As CSV</li><li role="menuitem" tabindex="0">As PDF</li></ul><p role="status" id="say"></p>`,
  tabs: `<h1>Account</h1><div role="tablist">${["Profile", "Billing", "Team"].map((name) => `<button role="tab" onclick="p.innerHTML = '<h2>${name}</h2><button onclick=&quot;p.append(\\'Invited\\')&quot;>Invite to ${name}</button>'">${name}</button>`).join("")}</div><div role="tabpanel" id="p"><h2>Profile</h2></div>`,
  toast: `<h1>Backup</h1><button onclick="const t = document.createElement('div'); t.setAttribute('role', 'alert'); t.textContent = 'Backup 7 was made'; document.body.append(t); setTimeout(() => t.remove(), 900)">Make a backup</button>`,
};

export const appTasks: AppTask[] = [
  {
    name: "login",
    path: "login",
    steps: [
      { on: '"User"', type: "ann", see: "" },
      { on: '"Password"', type: "secret", see: "" },
      { on: 'button "Sign in"', see: "Welcome, ann" },
    ],
  },
  {
    name: "paging",
    path: "orders-1",
    steps: [
      { on: 'link "Next page"', see: "Order 59" },
      { on: 'button "Ship order 47"', see: "Order 47 was shipped" },
    ],
  },
  {
    name: "modal",
    path: "modal",
    steps: [
      { on: 'button "Delete customer 17"', see: "Really delete?" },
      { on: '"Type DELETE"', type: "DELETE", see: "" },
      { on: 'button "Confirm"', see: "Customer deleted" },
    ],
  },
  {
    name: "date",
    path: "date",
    steps: [
      { on: 'button "Choose a date"', see: "January 2026" },
      { on: 'button "Next month"', see: "February 2026" },
      { on: 'button "Next month"', see: "March 2026" },
      { on: 'button "March 14"', see: "Delivery on March 14" },
    ],
  },
  {
    name: "frame",
    path: "frame",
    steps: [
      { on: '"Coupon"', type: "SAVE10", see: "" },
      { on: 'button "Apply"', see: "Coupon SAVE10 applied" },
    ],
  },
  { name: "shadow root", path: "shadow", steps: [{ on: 'button "Add to basket"', see: "Basket: 1" }] },
  { name: "closed shadow root", path: "closed", steps: [{ on: 'button "Four stars"', see: "4 stars" }] },
  {
    name: "endless list",
    path: "endless",
    steps: [
      { on: 'button "Load more"', see: "Post 80" },
      { on: 'button "Load more"', see: "Post 120" },
      { on: 'button "Like post 113"', see: "Liked post 113" },
    ],
  },
  {
    name: "late search",
    path: "search",
    steps: [
      { on: '"Search"', type: "pot no. 28", see: "3 products" },
      { on: 'button "Buy Pot no. 283"', see: "Bought Pot no. 283" },
    ],
  },
  {
    name: "wizard",
    path: "wizard",
    steps: [
      { on: '"Company"', type: "Miller", see: "" },
      { on: 'button "Continue"', see: "Step 2 of 3" },
      { on: '"Tax number"', type: "123", see: "" },
      { on: 'button "Continue"', see: "Step 3 of 3" },
      { on: '"Contact"', type: "Ann", see: "" },
      { on: 'button "Continue"', see: "Customer was created" },
    ],
  },
  {
    name: "to-do list",
    path: "todo",
    steps: [
      { on: '"New entry"', type: "milk", see: "" },
      { on: 'button "Add"', see: "Remove milk" },
      { on: 'button "Remove milk"', see: "Removed" },
    ],
  },
  {
    name: "settings",
    path: "settings",
    steps: [
      { on: 'checkbox "Invoices"', see: '"Invoices" [checked]' },
      { on: 'checkbox "News"', see: '"News" [checked]' },
      { on: 'button "Save settings"', see: "Settings were saved" },
    ],
  },
  {
    name: "chat",
    path: "chat",
    steps: [
      { on: '"Message"', type: "where is my order", see: "" },
      { on: 'button "Send"', see: "it is on its way" },
    ],
  },
  {
    name: "menu",
    path: "menu",
    steps: [
      { on: 'button "Export"', see: "As CSV" },
      { on: 'menuitem "As CSV"', see: "CSV is ready" },
    ],
  },
  {
    name: "tabs",
    path: "tabs",
    steps: [
      { on: 'tab "Team"', see: "Invite to Team" },
      { on: 'button "Invite to Team"', see: "Invited" },
    ],
  },
  { name: "toast", path: "toast", steps: [{ on: 'button "Make a backup"', see: "Backup 7 was made" }] },
];
