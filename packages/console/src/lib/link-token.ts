const inHash = () => new URLSearchParams(location.hash.slice(1)).get("token");

// Another link that is pasted into this tab changes nothing but the hash, which loads nothing.
addEventListener("hashchange", () => {
  if (inHash() !== null) location.reload();
});

/** The token of the link that was opened. Links made by earlier versions have it in the query. */
export const linkToken = (search: URLSearchParams): string => inHash() ?? search.get("token") ?? "";
