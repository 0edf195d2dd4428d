/**
 * How servers read a multipart form, where they differ: Go's net/http, Werkzeug (Flask) and Django. Models of their
 * rules, as far as fields, their values and what is a file depend on them. What a server refuses is null.
 */

export interface ReadField {
  name: string;
  isFile: boolean;
  value: string;
}
export type FormReader = (contentType: string, bytes: Buffer) => ReadField[] | null;

type Parameters = ReadonlyMap<string, string>;
interface Part {
  head: string;
  value: string;
}

const TOKEN = "[!#$%&'*+\\-.^`|~\\w]+";

/** Percent signs as bytes of UTF-8; null where they are not. */
function percentDecoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/** `charset'language'text`, in ASCII or UTF-8. */
function decoded2231(text: string): string | null {
  const [charset = "", , encoded] = text.split("'");
  if (encoded === undefined || !/^(us-ascii|utf-8)$/i.test(charset)) return null;
  return percentDecoded(encoded);
}

/** Go's mime.ParseMediaType: spaces around `=`, numbered and encoded parameters; null for anything else. */
function goParameters(header: string): Parameters | null {
  const plain = new Map<string, string>();
  const starred = new Map<string, Map<string, string>>();
  let rest = header.slice(header.split(";", 1)[0]!.length);
  const parameter = new RegExp(`^\\s*;\\s*(${TOKEN})\\s*=\\s*(?:"((?:[^"\\\\]|\\\\.)*)"|(${TOKEN}))`);
  while (rest.trim() !== "" && rest.trim() !== ";") {
    const found = parameter.exec(rest);
    if (!found) return null;
    const key = found[1]!.toLowerCase();
    const value = found[3] ?? found[2]!.replace(/\\([^\w])/g, "$1");
    const base = key.split("*", 1)[0]!;
    if (key !== base && !starred.has(base)) starred.set(base, new Map());
    const into = key === base ? plain : starred.get(base)!;
    if (into.has(key) && into.get(key) !== value) return null;
    into.set(key, value);
    rest = rest.slice(found[0].length);
  }
  for (const [base, pieces] of starred) {
    const whole = pieces.get(`${base}*`);
    if (whole !== undefined) {
      const decoded = decoded2231(whole);
      if (decoded !== null) plain.set(base, decoded);
      continue;
    }
    let joined: string | null = null;
    for (let at = 0; ; at++) {
      const encoded = pieces.get(`${base}*${at}*`);
      const piece =
        pieces.get(`${base}*${at}`) ?? (encoded && (at === 0 ? decoded2231 : percentDecoded)(encoded));
      if (piece === undefined) break;
      joined = (joined ?? "") + (piece ?? "");
    }
    if (joined !== null) plain.set(base, joined);
  }
  return plain;
}

/** Werkzeug's parse_options_header: skips what it does not understand; the last of several counts. */
function werkzeugParameters(header: string): Parameters {
  const options = new Map<string, string>();
  const parameter = new RegExp(`\\s*;\\s*(?:(${TOKEN})=(${TOKEN}|"(?:\\\\\\\\|\\\\"|.)*?"))?`, "g");
  const semicolon = header.indexOf(";");
  if (semicolon === -1) return options;
  for (const [, written, given = ""] of header.slice(semicolon).trim().matchAll(parameter)) {
    if (!written) continue;
    let key = written.toLowerCase();
    let value = given;
    if (key.endsWith("*")) {
      key = key.slice(0, -1);
      value = decoded2231(value) ?? value;
    }
    if (/^".*"$/.test(value))
      value = value.slice(1, -1).replaceAll("\\\\", "\\").replaceAll('\\"', '"').replaceAll("%22", '"');
    const [, name, number] = /^(.*)\*(\d+)$/.exec(key) ?? [];
    if (name === undefined) options.set(key, value);
    else options.set(name, number === "0" ? value : (options.get(name) ?? "") + value);
  }
  return options;
}

/** Django's parse_header_parameters: trims everything; the last of several counts. */
function djangoParameters(header: string): Parameters {
  const pieces: string[] = [];
  let isQuoted = false;
  let piece = "";
  for (let at = 0; at < header.length; at++) {
    if (header[at] === '"' && header[at - 1] !== "\\") isQuoted = !isQuoted;
    if (header[at] !== ";" || isQuoted) piece += header[at];
    else {
      pieces.push(piece);
      piece = "";
    }
  }
  pieces.push(piece);
  const parameters = new Map<string, string>();
  for (const each of pieces.slice(1)) {
    const equals = each.indexOf("=");
    if (equals === -1) continue;
    let key = each.slice(0, equals).trim().toLowerCase();
    const isEncoded = key.endsWith("*") && each.split("'").length === 3;
    if (key.endsWith("*")) key = key.slice(0, -1);
    let value = each.slice(equals + 1).trim();
    if (/^".*"$/.test(value)) value = value.slice(1, -1).replaceAll("\\\\", "\\").replaceAll('\\"', '"');
    if (isEncoded) value = percentDecoded(value.split("'")[2]!) ?? value;
    parameters.set(key, value);
  }
  return parameters;
}

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** Between delimiters that `mark` finds; its first group begins with `--` at the end of the form. */
function partsBetween(text: string, mark: RegExp, headEnd: RegExp): Part[] | null {
  const parts: Part[] = [];
  let from: number | null = null;
  for (const found of text.matchAll(mark)) {
    if (from !== null) {
      const part = text.slice(from, found.index);
      const blank = headEnd.exec(part);
      if (!blank) return null;
      parts.push({ head: part.slice(0, blank.index), value: part.slice(blank.index + blank[0].length) });
    }
    from = found.index + found[0].length;
    if (found[1]?.startsWith("--")) return parts;
  }
  return null;
}

const headerOf = (head: string, name: string): string | null =>
  new RegExp(`^${name}:[ \\t]*(.*)$`, "im").exec(head)?.[1]?.trim() ?? null;

/** Folded lines are joined; the first of several headers counts; an empty file name is a text. */
export const goReader: FormReader = (contentType, bytes) => {
  const boundary = goParameters(contentType)?.get("boundary");
  if (!boundary) return null;
  const mark = new RegExp(`(?:^|\\r\\n)--${escaped(boundary)}(--|[ \\t]*\\r\\n)`, "g");
  const parts = partsBetween(bytes.toString("latin1"), mark, /^\r\n|\r\n\r\n/);
  return (
    parts?.flatMap(({ head, value }) => {
      const parameters = goParameters(
        headerOf(head.replace(/\r?\n[ \t]+/g, " "), "content-disposition") ?? "",
      );
      const name = parameters?.get("name");
      return name ? { name, isFile: (parameters?.get("filename") ?? "") !== "", value } : [];
    }) ?? null
  );
};

/** Lines may end in any way; the first of several headers counts; any file name makes a file. */
export const werkzeugReader: FormReader = (contentType, bytes) => {
  const boundary = werkzeugParameters(contentType).get("boundary");
  if (!boundary) return null;
  const mark = new RegExp(`(?:^|\\r\\n|\\n|\\r)--${escaped(boundary)}(--|[ \\t]*(?:\\r\\n|\\n|\\r))`, "g");
  const parts = partsBetween(bytes.toString("latin1"), mark, /^\r\n|\r\n\r\n|\r\r|\n\n/);
  return (
    parts?.flatMap(({ head, value }) => {
      const disposition = headerOf(head.replace(/(?:\r\n|\n|\r)[ \t]/g, " "), "content-disposition *");
      const parameters = werkzeugParameters(disposition ?? "");
      const name = parameters.get("name");
      return name === undefined ? [] : { name, isFile: parameters.has("filename"), value };
    }) ?? null
  );
};

/**
 * A boundary may stand anywhere, and what is before the first or after the last is a part as well; names are trimmed;
 * the last of several headers counts; base64 is decoded.
 */
export const djangoReader: FormReader = (contentType, bytes) => {
  const boundary = djangoParameters(contentType).get("boundary");
  if (!boundary) return null;
  const pieces = bytes.toString("latin1").split(new RegExp(`\\r?\\n?--${escaped(boundary)}`));
  return pieces.flatMap((piece) => {
    const headEnd = piece.indexOf("\r\n\r\n");
    if (headEnd === -1) return [];
    const value = piece.slice(headEnd + 4);
    const headers = new Map(
      piece
        .slice(0, headEnd)
        .split("\r\n")
        .map((line) => line.split(/:(.*)/) as [string, string])
        .map(([name, rest = ""]) => [name.toLowerCase(), rest.trim()]),
    );
    const parameters = djangoParameters(headers.get("content-disposition") ?? "");
    const name = parameters.get("name")?.trim();
    if (!name) return [];
    const isEncoded = headers.get("content-transfer-encoding") === "base64";
    const isFile = (parameters.get("filename") ?? "") !== "";
    return { name, isFile, value: isEncoded ? Buffer.from(value, "base64").toString("latin1") : value };
  });
};

export const FORM_READERS: readonly [string, FormReader][] = [
  ["Go", goReader],
  ["Werkzeug", werkzeugReader],
  ["Django", djangoReader],
];
