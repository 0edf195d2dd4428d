/** Whether a name carries a tag: a colon after the last slash, so that a registry's port is not one. */
const hasTag = (name: string): boolean => name.indexOf(":", name.lastIndexOf("/") + 1) !== -1;

/** A listing `name:latest` answers to the bare `name`; a name with a tag answers only to itself. */
export function sameModel(listed: string, requested: string): boolean {
  return listed === requested || (!hasTag(requested) && listed === `${requested}:latest`);
}
