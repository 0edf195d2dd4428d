import { api } from "./api.ts";
import { session } from "./client.ts";
import { useQuery } from "./query.ts";
import { useStore } from "./store.ts";

/** All groups for administrators, who need not be in them; one's own for others. */
export function useGroups() {
  const everyone = useStore(session)?.user.is_admin ?? false;
  return useQuery("groups", () => api("group.list", { everyone }));
}
