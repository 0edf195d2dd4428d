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

  /** From roles with the elements that have them to elements with their roles. */
  const byTag = (tagsOf: Record<string, string>): Record<string, string> =>
    Object.fromEntries(
      Object.entries(tagsOf).flatMap(([role, tags]) => tags.split(" ").map((tag) => [tag, role])),
    );
  const namedAlike =
    "ARTICLE BLOCKQUOTE BUTTON CAPTION CODE DIALOG FIGURE MAIN MARK MATH METER OPTION SEARCH STRONG " +
    "TABLE TIME";

  /** What an element means by its name alone. */
  const plainRoles = byTag({
    ...Object.fromEntries(namedAlike.split(" ").map((tag) => [tag.toLowerCase(), tag])),
    group: "ADDRESS DETAILS FIELDSET HGROUP OPTGROUP",
    listbox: "DATALIST",
    definition: "DD",
    deletion: "DEL S",
    term: "DFN DT",
    list: "DIR MENU OL UL",
    emphasis: "EM",
    heading: "H1 H2 H3 H4 H5 H6",
    separator: "HR",
    document: "HTML",
    insertion: "INS",
    navigation: "NAV",
    status: "OUTPUT",
    paragraph: "P",
    progressbar: "PROGRESS",
    subscript: "SUB",
    superscript: "SUP",
    rowgroup: "TBODY TFOOT THEAD",
    textbox: "TEXTAREA",
    row: "TR",
  });
  const inputRoles = byTag({
    button: "button file image reset submit",
    checkbox: "checkbox",
    radio: "radio",
    slider: "range",
    spinbutton: "number",
  });
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
  const drawingRoles = byTag({
    group: "G FOREIGNOBJECT",
    "graphics-object": "USE",
    "graphics-symbol": "CIRCLE ELLIPSE LINE PATH POLYGON POLYLINE RECT",
  });

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
