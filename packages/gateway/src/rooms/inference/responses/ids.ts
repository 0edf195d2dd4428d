const ID = /^resp_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/;

/** The request's id in a response's; null when it cannot be one of ours. */
export const requestIdOf = (responseId: string): string | null => {
  const parts = ID.exec(responseId);
  return parts?.slice(1).join("-") ?? null;
};

export const responseIdOf = (requestId: string): string => `resp_${requestId.replaceAll("-", "")}`;
