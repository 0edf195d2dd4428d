/** A link that lets someone in. Browsers send what is after the # to no server, so the token is in no log. */
export const oneTimeLink = (serviceUrl: string, page: "join" | "welcome", token: string): string =>
  `${serviceUrl}/${page}#${new URLSearchParams({ token })}`;
