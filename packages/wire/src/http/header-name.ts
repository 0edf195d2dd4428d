const UPPER_A = 65;
const UPPER_Z = 90;

/** Whether the characters from `start` to `end` are `name`, which is in lower case. */
export function isHeaderName(text: string, start: number, end: number, name: string): boolean {
  if (end - start !== name.length) return false;
  for (let i = 0; i < name.length; i++)
    if (lowerCase(text.charCodeAt(start + i)) !== name.charCodeAt(i)) return false;
  return true;
}

const lowerCase = (code: number): number => (code >= UPPER_A && code <= UPPER_Z ? code | 32 : code);
