/** `…/v1`, `…/v4`, `…/v1beta/openai`: an operator who writes the version means exactly that path. */
const VERSIONED = /\/v\d+[a-z0-9]*(\/|$)/i;
/** Pasted from an API reference more often than one would think. */
const ENDPOINT = /\/(chat\/completions|completions|embeddings|models|responses|messages)$/i;

/** Where the paths of an API begin: the URL as registered, with `version` where it names none. */
export function apiBase(url: string, version = "v1"): string {
  const base = url.replace(/\/+$/, "").replace(ENDPOINT, "");
  return VERSIONED.test(base) ? base : `${base}/${version}`;
}
