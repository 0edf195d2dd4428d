/** The roles that ARIA, its modules for publications and graphics, HTML and SVG define, as lists. */

export function createRoleTables() {
  const words = (text: string) => new Set(text.split(" "));

  const aria =
    "alert alertdialog application article banner blockquote button caption cell checkbox code columnheader " +
    "combobox comment complementary contentinfo definition deletion dialog document emphasis feed figure form " +
    "generic grid gridcell group heading img insertion link list listbox listitem log main mark marquee math " +
    "meter menu menubar menuitem menuitemcheckbox menuitemradio navigation none note option paragraph " +
    "presentation progressbar radio radiogroup region row rowgroup rowheader scrollbar search searchbox " +
    "sectionfooter sectionheader separator slider spinbutton status strong subscript suggestion superscript " +
    "switch tab table tablist tabpanel term textbox time timer toolbar tooltip tree treegrid treeitem";
  const graphics = "graphics-document graphics-object graphics-symbol";
  const publications = (
    "abstract acknowledgments afterword appendix backlink biblioentry bibliography biblioref chapter colophon " +
    "conclusion cover credit credits dedication endnote endnotes epigraph epilogue errata example footnote " +
    "foreword glossary glossref index introduction noteref notice pagebreak pagefooter pageheader pagelist part " +
    "preface prologue pullquote qna subtitle tip toc"
  )
    .split(" ")
    .map((name) => `doc-${name}`);
  const knownRoles = new Set([...words(aria), ...words(graphics), ...publications]);

  /** Other names for the same role; the older ones are those that agents know. */
  const synonyms: Record<string, string> = { image: "img", directory: "list" };

  const globalAttributes = (
    "aria-atomic aria-busy aria-controls aria-current aria-describedby aria-details aria-dropeffect " +
    "aria-flowto aria-grabbed aria-hidden aria-keyshortcuts aria-live aria-owns aria-relevant"
  ).split(" ");
  const sectioning =
    "article:not([role]), aside:not([role]), nav:not([role]), section:not([role]), " +
    "[role=article], [role=complementary], [role=navigation], [role=region]";

  /** What an element means by its name alone. */
  const plainRoles: Record<string, string> = {
    ADDRESS: "group",
    ARTICLE: "article",
    BLOCKQUOTE: "blockquote",
    BUTTON: "button",
    CAPTION: "caption",
    CODE: "code",
    DATALIST: "listbox",
    DD: "definition",
    DEL: "deletion",
    DETAILS: "group",
    DFN: "term",
    DIALOG: "dialog",
    DIR: "list",
    DT: "term",
    EM: "emphasis",
    FIELDSET: "group",
    FIGURE: "figure",
    H1: "heading",
    H2: "heading",
    H3: "heading",
    H4: "heading",
    H5: "heading",
    H6: "heading",
    HGROUP: "group",
    HR: "separator",
    HTML: "document",
    INS: "insertion",
    MAIN: "main",
    MARK: "mark",
    MATH: "math",
    MENU: "list",
    METER: "meter",
    NAV: "navigation",
    OL: "list",
    OPTGROUP: "group",
    OPTION: "option",
    OUTPUT: "status",
    P: "paragraph",
    PROGRESS: "progressbar",
    S: "deletion",
    SEARCH: "search",
    STRONG: "strong",
    SUB: "subscript",
    SUP: "superscript",
    TABLE: "table",
    TBODY: "rowgroup",
    TEXTAREA: "textbox",
    TFOOT: "rowgroup",
    THEAD: "rowgroup",
    TIME: "time",
    TR: "row",
    UL: "list",
  };
  const inputRoles: Record<string, string> = {
    button: "button",
    checkbox: "checkbox",
    file: "button",
    image: "button",
    number: "spinbutton",
    radio: "radio",
    range: "slider",
    reset: "button",
    submit: "button",
  };
  /** A table or list with role=none takes the meaning from these parts of it too. */
  const inheritsNone: Record<string, string> = {
    DD: "DL DIV",
    DIV: "DL",
    DT: "DL DIV",
    LI: "OL UL",
    TBODY: "TABLE",
    TD: "TR",
    TFOOT: "TABLE",
    TH: "TR",
    THEAD: "TABLE",
    TR: "THEAD TBODY TFOOT TABLE",
  };

  /** Elements without a meaning of their own; some attributes give them one. */
  const genericTags = words("A AREA ASIDE B BDI BDO DATA DIV FORM I PRE Q SAMP SECTION SMALL SPAN U");
  /** What the parts of a drawing are once they have a name. */
  const drawingRoles: Record<string, string> = {
    G: "group",
    FOREIGNOBJECT: "group",
    USE: "graphics-object",
    CIRCLE: "graphics-symbol",
    ELLIPSE: "graphics-symbol",
    LINE: "graphics-symbol",
    PATH: "graphics-symbol",
    POLYGON: "graphics-symbol",
    POLYLINE: "graphics-symbol",
    RECT: "graphics-symbol",
  };

  return {
    knownRoles,
    synonyms,
    globalAttributes,
    sectioning,
    plainRoles,
    inputRoles,
    inheritsNone,
    genericTags,
    drawingRoles,
  };
}

export type RoleTables = ReturnType<typeof createRoleTables>;
