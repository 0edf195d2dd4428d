import { useGroups } from "../lib/groups.ts";
import { SelectField } from "./controls.tsx";

/** Oneself, or the pool of a group of one's own; nothing to choose without one. */
export function PoolField({
  label,
  own,
  value,
  onChange,
}: {
  label: string;
  own: string;
  value: string;
  onChange(groupId: string): void;
}) {
  const groups = useGroups().data?.filter(({ my_role }) => my_role !== null) ?? [];
  if (groups.length === 0) return null;
  const pools = groups.map(({ id, name }) => ({ value: id, label: `The pool of ${name}` }));
  return (
    <SelectField
      label={label}
      value={value}
      onChange={onChange}
      choices={[{ value: "", label: own }, ...pools]}
    />
  );
}
