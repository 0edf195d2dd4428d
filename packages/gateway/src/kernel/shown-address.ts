const USER_INFO = /^([a-z][a-z\d+.-]*:\/\/)[^/?#]*@/i;
const SECRET_PARAMETER = /([?&][^=&#]*(?:key|token|secret|password|signature)[^=&#]*=)[^&#]*/gi;

/** A URL as answers and logs may show it: credentials in one are a secret like any other. */
export const shownUrl = (url: string): string =>
  url.replace(USER_INFO, "$1").replace(SECRET_PARAMETER, "$1[redacted]");
