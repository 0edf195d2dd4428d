const USER_INFO = /^([a-z][a-z\d+.-]*:\/\/)[^/?#]*@/i;
const SECRET_PARAMETER = /([?&][^=&#]*(?:key|token|secret|password|signature)[^=&#]*=)[^&#]*/gi;

export const shownUrl = (url: string): string =>
  url.replace(USER_INFO, "$1").replace(SECRET_PARAMETER, "$1[redacted]");
