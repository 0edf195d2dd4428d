/** The page of the twenty-step task: sixty orders in a table, dialogs, messages, tabs; all of it drawn by script. */
export const orders = `<title>Orders</title><style>[hidden] { display: none } table { border-collapse: collapse }</style>
<header><h1>Orders</h1><p id="who">Please sign in</p><button id="out" hidden>Sign out</button></header>
<form id="login"><label>User <input id="user"></label><label>Password <input id="password"></label><button>Sign in</button></form>
<main id="app" hidden><div role="tablist"><button role="tab" id="t1" aria-selected="true">Open</button><button role="tab" id="t2">Archive</button></div>
<p><label>Search <input id="search"></label> <button id="sort">Sort by amount</button> <button id="create">New order</button> <span id="count"></span></p>
<table><thead><tr><th>Order</th><th>Customer</th><th>Amount</th><th>Actions</th></tr></thead><tbody id="rows"></tbody></table></main>
<dialog id="dialog"><form id="edit"><h2 id="heading"></h2><label>Customer <input id="customer"></label><label>Amount <input id="amount"></label>
<p id="wrong" role="alert"></p><label><input type="checkbox" id="express"> Express</label><button id="save">Save</button></form></dialog><div role="status" id="status"></div>
<script>
const $ = (id) => document.getElementById(id)
const names = ['Adams', 'Baker', 'Clark', 'Davis', 'Evans', 'Foster']
let list = Array.from({ length: 60 }, (_, i) => ({ id: i + 1, customer: names[i % 6], amount: (i * 37) % 90 + 10, archived: false }))
let editing = null, showsArchive = false, byAmount = false
function say(text) { $('status').textContent = text; setTimeout(() => { if ($('status').textContent === text) $('status').textContent = '' }, 2000) }
function draw() {
  const wanted = list.filter((o) => o.archived === showsArchive && o.customer.includes($('search').value))
  if (byAmount) wanted.sort((a, b) => a.amount - b.amount)
  $('count').textContent = showsArchive ? wanted.length + ' archived orders' : wanted.length + (wanted.length === 1 ? ' order found' : ' orders found') + (byAmount ? ', sorted by amount' : '')
  const old = new Map([...$('rows').children].map((row) => [row.dataset.id, row]))
  $('rows').replaceChildren(...wanted.map((o) => {
    const row = old.get(String(o.id)) ?? document.createElement('tr')
    row.dataset.id = o.id
    const html = '<td>' + o.id + '</td><td>' + o.customer + '</td><td>' + o.amount + '</td><td>' + (o.archived
      ? '<button data-do="restore">Restore order ' + o.id + '</button>'
      : '<button data-do="edit">Edit order ' + o.id + '</button><button data-do="archive">Archive order ' + o.id + '</button>') + '</td>'
    if (row.dataset.html !== html) { row.innerHTML = html; row.dataset.html = html }
    return row
  }))
}
function open(order) {
  editing = order; $('heading').textContent = order ? 'Edit order ' + order.id : 'New order'; $('dialog').setAttribute('aria-label', $('heading').textContent)
  $('customer').value = order?.customer ?? ''; $('amount').value = order?.amount ?? ''; $('wrong').textContent = ''; $('save').textContent = order ? 'Save' : 'Create'; $('dialog').showModal()
}
$('login').onsubmit = (e) => { e.preventDefault(); $('login').hidden = true; $('app').hidden = false; $('out').hidden = false; $('who').textContent = 'Signed in as ' + $('user').value; draw() }
$('out').onclick = () => { $('app').hidden = true; $('login').hidden = false; $('out').hidden = true; $('who').textContent = 'Signed out' }
$('search').oninput = draw
$('sort').onclick = () => { byAmount = !byAmount; draw() }
$('create').onclick = () => open(null)
$('amount').oninput = () => { $('wrong').textContent = $('amount').value ? '' : 'Amount is missing' }
$('edit').onsubmit = (e) => { e.preventDefault(); if (!$('amount').value) return
  if (editing) Object.assign(editing, { customer: $('customer').value, amount: Number($('amount').value) })
  else list.push({ id: list.length + 1, customer: $('customer').value, amount: Number($('amount').value), archived: false })
  $('dialog').close(); draw(); say('Order ' + (editing?.id ?? list.length) + (editing ? ' was saved' : ' was created')) }
$('rows').onclick = (e) => { const what = e.target.dataset.do, order = list[Number(e.target.closest('tr').dataset.id) - 1]
  if (what === 'edit') open(order); else if (what) { order.archived = what === 'archive'; draw(); say('Order ' + order.id + ' was ' + what + 'd') } }
$('t1').onclick = () => { showsArchive = false; draw() }
$('t2').onclick = () => { showsArchive = true; draw() }
</script>`;

/** The same page as most are made: what is done shows 300 ms later, and the rows are drawn anew each time. */
export const ordersLate = orders
  .replace(
    "const old = new Map([...$('rows').children].map((row) => [row.dataset.id, row]))",
    "const old = new Map()",
  )
  .replace(
    "</script>",
    `for (const [id, name] of [['login', 'onsubmit'], ['out', 'onclick'], ['search', 'oninput'], ['sort', 'onclick'], ['create', 'onclick'],
  ['amount', 'oninput'], ['edit', 'onsubmit'], ['rows', 'onclick'], ['t1', 'onclick'], ['t2', 'onclick']]) {
  const now = $(id)[name]
  $(id)[name] = (e) => { e.preventDefault(); setTimeout(() => now(e), 300) }
}
</script>`,
  );
