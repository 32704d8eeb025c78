// Every screen that there is. The navigation, the routes and the `g` shortcuts are made from this
// list; a screen is loaded when it is first shown. The first is where `/` leads.
import type { ComponentType } from "react";
import type { Role } from "../api/documents";
import type { IconName } from "../parts/Icon";
import { loaded } from "../parts/loaded";

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
    component: loaded(() => import("./overview/Overview")),
    nav: { label: "Overview", icon: "overview", key: "o" },
  },
  {
    path: "/groups",
    component: loaded(() => import("./groups/Groups")),
    nav: { label: "Groups", icon: "groups", key: "g" },
  },
  { path: "/groups/:fingerprint", component: loaded(() => import("./groups/Group")) },
  {
    path: "/letters",
    component: loaded(() => import("./letters/Letters")),
    nav: { label: "Letters", icon: "letters", key: "l" },
  },
  { path: "/letters/:id", component: loaded(() => import("./letter/Letter")) },
  {
    path: "/replays",
    component: loaded(() => import("./replays/Replays")),
    nav: { label: "Replays", icon: "replays", key: "r" },
  },
  { path: "/replays/new", component: loaded(() => import("./replays/NewReplay")), role: "operator" },
  { path: "/replays/:id", component: loaded(() => import("./replays/Replay")) },
  {
    path: "/policies",
    component: loaded(() => import("./policies/Policies")),
    nav: { label: "Policies", icon: "policies", key: "p" },
  },
  {
    path: "/topology",
    component: loaded(() => import("./topology/TopologyScreen")),
    nav: { label: "Topology", icon: "topology", key: "t" },
  },
  {
    path: "/audit",
    component: loaded(() => import("./audit/Audit")),
    nav: { label: "Audit", icon: "audit", key: "a" },
    role: "operator",
  },
  {
    path: "/access",
    component: loaded(() => import("./access/Access")),
    nav: { label: "Access", icon: "user", key: "u" },
    role: "admin",
  },
];
