/** Widgets of others, as they come from npm, with one thing to do with each. */
import { type AppTask, tasksOf } from "./app.ts";
import { click, enter, press } from "./task.ts";

interface Widget {
  /** Of the packages that the page takes files from, the first is the widget itself. */
  packages: string[];
  /** Scripts and styles, as paths below node_modules. */
  files: string[];
  /** The page; `say` shows what came of it. */
  page: string;
  steps: AppTask["steps"];
}

const code = "function f() {\n  return 42\n}";
/** Editors are asked what they hold: what they show may be cut, wrapped or coloured. */
const checkCode = `const check = (text) => { say.textContent = text === ${JSON.stringify(code)} ? 'Exactly as typed' : 'Other text of ' + text.length }`;
const countries = "Austria Belgium Canada Denmark Norway Peru".split(" ");
const options = countries.map((name) => `<option>${name}</option>`).join("");
const chosen = "say.textContent = 'Chosen: ' + ";

const widgets: Record<string, Widget> = {
  select2: {
    packages: ["select2@4", "jquery@3"],
    files: [
      "jquery/dist/jquery.min.js",
      "select2/dist/js/select2.min.js",
      "select2/dist/css/select2.min.css",
    ],
    page: `<select id="s" style="width: 200px">${options}</select><script>$('#s').select2().on('change', () => { ${chosen}s.value })</script>`,
    steps: [click("combobox", "Peru"), click('option "Norway"', "Chosen: Norway")],
  },
  flatpickr: {
    packages: ["flatpickr@4"],
    files: ["flatpickr/dist/flatpickr.min.js", "flatpickr/dist/flatpickr.min.css"],
    page: `<label>Date <input id="d"></label><script>flatpickr(d, { defaultDate: '2026-05-01', onChange: (_, text) => { ${chosen}text } })</script>`,
    steps: [click('"Date"', '"May 14, 2026"'), click('"May 14, 2026"', "Chosen: 2026-05-14")],
  },
  SortableJS: {
    packages: ["sortablejs@1"],
    files: ["sortablejs/Sortable.min.js"],
    page: `<ul id="l">${[1, 2, 3, 4].map((n) => `<li>Entry ${n}</li>`).join("")}</ul><script>new Sortable(l, { onEnd: () => { say.textContent = 'Order: ' + [...l.children].map((e) => e.textContent.slice(-1)).join('') } })</script>`,
    steps: [{ on: "Entry 1", dragTo: "Entry 4", see: "Order: 2" }],
  },
  Quill: {
    packages: ["quill@2"],
    files: ["quill/dist/quill.js", "quill/dist/quill.snow.css"],
    page: `<div id="e"></div><script>const q = new Quill('#e', { theme: 'snow' }); q.root.setAttribute('role', 'textbox'); q.root.setAttribute('aria-label', 'Letter'); q.on('text-change', () => { say.textContent = 'Holds: ' + q.getText() })</script>`,
    steps: [enter('textbox "Letter"', "Dear Miller", "Holds: Dear Miller")],
  },
  "CodeMirror 5": {
    packages: ["codemirror@5"],
    files: [
      "codemirror/lib/codemirror.js",
      "codemirror/mode/javascript/javascript.js",
      "codemirror/addon/edit/closebrackets.js",
      "codemirror/lib/codemirror.css",
    ],
    page: `<div id="e"></div><script>${checkCode}; CodeMirror(e, { mode: 'javascript', autoCloseBrackets: true, lineNumbers: true }).on('change', (c) => check(c.getValue()))</script>`,
    steps: [enter("textbox", code, "Exactly as typed")],
  },
  Monaco: {
    packages: ["monaco-editor@0.52"],
    files: ["monaco-editor/min/vs/loader.js"],
    page: `<div id="e" style="height: 200px"></div><script>${checkCode}; require.config({ paths: { vs: '/npm/monaco-editor/min/vs' } }); require(['vs/editor/editor.main'], () => { const made = monaco.editor.create(e, { value: '', language: 'javascript' }); made.onDidChangeModelContent(() => check(made.getValue())); say.textContent = 'Ready' })</script>`,
    steps: [{ see: "Ready" }, enter("textbox", code, "Exactly as typed")],
  },
  TinyMCE: {
    packages: ["tinymce@7"],
    files: ["tinymce/tinymce.min.js"],
    page: `<textarea id="t"></textarea><script>tinymce.init({ selector: '#t', license_key: 'gpl', setup: (made) => { made.on('init', () => { say.textContent = 'Ready' }); made.on('input change', () => { say.textContent = 'Holds: ' + made.getContent({ format: 'text' }) }) } })</script>`,
    steps: [
      { see: "Ready" },
      enter(/generic.* "Rich Text Area|editable/, "Dear Miller", "Holds: Dear Miller"),
    ],
  },
  "AG Grid": {
    packages: ["ag-grid-community@33"],
    files: ["ag-grid-community/dist/ag-grid-community.min.js"],
    page: `<div id="g" style="height: 300px; width: 500px"></div><script>agGrid.createGrid(g, { columnDefs: [{ field: 'name' }, { field: 'price' }], rowData: Array.from({ length: 100 }, (_, i) => ({ name: 'Thing ' + i, price: (i * 37) % 101 })), onSortChanged: ({ api }) => { say.textContent = 'First: ' + api.getDisplayedRowAtIndex(0).data.name } })</script>`,
    steps: [click('"Price"', "First: Thing 0")],
  },
  DataTables: {
    packages: ["datatables.net@2", "jquery@3"],
    files: ["jquery/dist/jquery.min.js", "datatables.net/js/dataTables.min.js"],
    page: `<table id="t"><thead><tr><th>Name</th><th>City</th></tr></thead><tbody>${Array.from({ length: 57 }, (_, i) => `<tr><td>Person ${i}</td><td>City ${i % 9}</td></tr>`).join("")}</tbody></table><script>new DataTable('#t')</script>`,
    steps: [enter('"Search:"', "Person 42", "filtered from 57")],
  },
  "Tom Select": {
    packages: ["tom-select@2"],
    files: ["tom-select/dist/js/tom-select.complete.min.js", "tom-select/dist/css/tom-select.css"],
    page: `<label for="s">Country</label><select id="s"><option value=""></option>${options}</select><script>new TomSelect('#s', { onChange: (value) => { ${chosen}value } })</script>`,
    steps: [click("combobox", "Norway"), click('option "Norway"', "Chosen: Norway")],
  },
  Leaflet: {
    packages: ["leaflet@1"],
    files: ["leaflet/dist/leaflet.js", "leaflet/dist/leaflet.css"],
    page: `<div id="m" style="height: 300px"></div><script>const map = L.map('m').setView([52, 13], 5); map.on('zoomend', () => { say.textContent = 'Zoom ' + map.getZoom() })</script>`,
    steps: [click('"Zoom in"', "Zoom 6")],
  },
  "Chart.js": {
    packages: ["chart.js@4"],
    files: ["chart.js/dist/chart.umd.js"],
    page: `<div style="width: 600px"><canvas id="c" role="img" aria-label="Sales"></canvas></div><script>new Chart(c, { type: 'bar', data: { labels: ['Jan', 'Feb', 'Mar'], datasets: [{ data: [9, 9, 9] }] }, options: { animation: false, onClick: (_, hit) => { say.textContent = 'Bar ' + ['Jan', 'Feb', 'Mar'][hit[0]?.index] } } })</script>`,
    steps: [click('"Sales"', "Bar Feb")],
  },
  antd: {
    packages: ["antd@5", "react@18", "react-dom@18", "dayjs@1"],
    files: [
      "react/umd/react.production.min.js",
      "react-dom/umd/react-dom.production.min.js",
      "dayjs/dayjs.min.js",
      "antd/dist/antd.min.js",
    ],
    page: `<div id="r"></div><script>ReactDOM.createRoot(r).render(React.createElement(antd.Select, { style: { width: 200 }, 'aria-label': 'Country', options: ${JSON.stringify(countries.map((value) => ({ value })))}, onChange: (value) => { ${chosen}value } }))</script>`,
    steps: [click("combobox", "Norway"), click("Norway", "Chosen: Norway")],
  },
  "Element Plus": {
    packages: ["element-plus@2", "vue@3"],
    files: [
      "vue/dist/vue.global.prod.js",
      "element-plus/dist/index.full.min.js",
      "element-plus/dist/index.css",
    ],
    page: `<div id="v"><el-select v-model="value" aria-label="Country" style="width: 200px" @change="tell"><el-option v-for="each in all" :key="each" :label="each" :value="each"></el-option></el-select></div><script>Vue.createApp({ data: () => ({ value: '', all: ${JSON.stringify(countries)} }), methods: { tell(value) { ${chosen}value } } }).use(ElementPlus).mount('#v')</script>`,
    steps: [click(/\bSelect$|"Select"/, "Norway"), click('option "Norway"', "Chosen: Norway")],
  },
  "xterm.js": {
    packages: ["@xterm/xterm@5"],
    files: ["@xterm/xterm/lib/xterm.js", "@xterm/xterm/css/xterm.css"],
    page: `<div id="t"></div><script>const term = new Terminal(); term.open(t); term.focus(); let line = ''; term.onData((data) => { if (data === '\\r') { say.textContent = 'Entered ' + line; line = '' } else { line += data; term.write(data) } })</script>`,
    steps: [press("l", ""), press("s", ""), press("Enter", "Entered ls")],
  },
  noUiSlider: {
    packages: ["nouislider@15"],
    files: ["nouislider/dist/nouislider.min.js", "nouislider/dist/nouislider.min.css"],
    page: `<div id="s" style="margin: 40px; width: 300px"></div><script>noUiSlider.create(s, { start: 50, step: 1, range: { min: 0, max: 100 } }); s.noUiSlider.on('change', ([value]) => { say.textContent = 'Value ' + Number(value) })</script>`,
    steps: [click("slider", ""), press("ArrowRight", "Value 51")],
  },
  htmx: {
    packages: ["htmx.org@2"],
    files: ["htmx.org/dist/htmx.min.js"],
    page: `<label>Find <input name="q" hx-get="/app/api/hits" hx-trigger="keyup changed delay:200ms" hx-target="#hits"></label><div id="hits"></div>`,
    steps: [enter('"Find"', "tea", "3 hits for tea")],
  },
  Dropzone: {
    packages: ["dropzone@6"],
    files: ["dropzone/dist/dropzone-min.js", "dropzone/dist/dropzone.css"],
    page: `<form id="d" class="dropzone" action="/app/api/file"></form><script>Dropzone.autoDiscover = false; new Dropzone('#d').on('success', (file) => { say.textContent = 'Sent ' + file.name })</script>`,
    steps: [{ on: "Drop files here", upload: "prices.txt", see: "Sent prices.txt" }],
  },
  Tabulator: {
    packages: ["tabulator-tables@6"],
    files: ["tabulator-tables/dist/js/tabulator.min.js", "tabulator-tables/dist/css/tabulator.min.css"],
    page: `<div id="g"></div><script>const made = new Tabulator('#g', { height: 200, data: Array.from({ length: 40 }, (_, id) => ({ id, name: 'Person ' + id })), columns: [{ title: 'Name', field: 'name', headerFilter: 'input' }] }); made.on('dataFiltered', (_, rows) => { if (rows.length < 40) say.textContent = rows.length + ' left' })</script>`,
    steps: [enter(/(searchbox|textbox)/, "Person 17", "1 left")],
  },
};

export const widgetPackages = [...new Set(Object.values(widgets).flatMap(({ packages }) => packages))];

const tagOf = (file: string) =>
  file.endsWith(".css")
    ? `<link rel="stylesheet" href="/npm/${file}">`
    : `<script src="/npm/${file}"></script>`;

export const widgetTasks = tasksOf(
  Object.fromEntries(
    Object.entries(widgets).map(([name, { files, page, steps }]) => [
      name,
      { page: `${files.map(tagOf).join("")}<h1>${name}</h1><p role="status" id="say"></p>${page}`, steps },
    ]),
  ),
  "widget-",
);
