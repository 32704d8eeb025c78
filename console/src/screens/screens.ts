// Every screen that there is. The navigation, the routes and the `g` shortcuts are made from this
// list; a screen is loaded when it is first shown. The first is where `/` leads.
import { lazy, type ComponentType } from "react";
import type { Role } from "../api/documents";
import type { IconName } from "../parts/Icon";

export interface Screen {
  /** The route, with parameters as `:name`. */
  path: string;
  component: ComponentType;
  /** Its place in the navigation; without one it is reached from another screen. */
  nav?: { label: string; icon: IconName; key: string };
  /** Who may see it; everybody without. */
  role?: Role;
}

export const screens: readonly Screen[] = [
  {
    path: "/",
    component: lazy(() => import("./overview/Overview")),
    nav: { label: "Overview", icon: "overview", key: "o" },
  },
  {
    path: "/groups",
    component: lazy(() => import("./groups/Groups")),
    nav: { label: "Groups", icon: "groups", key: "g" },
  },
  { path: "/groups/:fingerprint", component: lazy(() => import("./groups/Group")) },
  {
    path: "/letters",
    component: lazy(() => import("./letters/Letters")),
    nav: { label: "Letters", icon: "letters", key: "l" },
  },
  { path: "/letters/:id", component: lazy(() => import("./letter/Letter")) },
  {
    path: "/replays",
    component: lazy(() => import("./replays/Replays")),
    nav: { label: "Replays", icon: "replays", key: "r" },
  },
  { path: "/replays/new", component: lazy(() => import("./replays/NewReplay")), role: "operator" },
  { path: "/replays/:id", component: lazy(() => import("./replays/Replay")) },
  {
    path: "/policies",
    component: lazy(() => import("./policies/Policies")),
    nav: { label: "Policies", icon: "policies", key: "p" },
  },
  {
    path: "/topology",
    component: lazy(() => import("./topology/TopologyScreen")),
    nav: { label: "Topology", icon: "topology", key: "t" },
  },
  {
    path: "/audit",
    component: lazy(() => import("./audit/Audit")),
    nav: { label: "Audit", icon: "audit", key: "a" },
    role: "operator",
  },
  {
    path: "/access",
    component: lazy(() => import("./access/Access")),
    nav: { label: "Access", icon: "user", key: "u" },
    role: "admin",
  },
];
