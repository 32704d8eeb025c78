// Users with passwords, and tokens for programs.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get, remove } from "../../api/client";
import type { Token, User } from "../../api/documents";
import { useMay, useMe } from "../../api/session";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Notice } from "../../parts/Notice";
import { Page, Section, Waiting } from "../../parts/Page";
import { Badge } from "../../parts/StateBadge";
import { RowActions, Table, type Column } from "../../parts/Table";
import { Time } from "../../parts/Time";
import { Confirm } from "./Confirm";
import { NewToken } from "./NewToken";
import { UserDialog } from "./UserDialog";

type Open =
  | { what: "token" }
  | { what: "revoke"; token: Token }
  | { what: "user"; user: User | null }
  | { what: "delete"; user: User };

export default function Access() {
  const admin = useMay("admin");
  const me = useMe();
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  if (!admin) {
    return (
      <Page title="Access">
        <EmptyState icon="user" title="Only admins see users and tokens" />
      </Page>
    );
  }
  return (
    <Page title="Access" about="Who may use the API and the console, and as what.">
      {me.login === "none" && (
        <Notice tone="warning" title="Nobody has to log in">
          Everybody on this machine is admin, as long as there is neither a user nor a token. Add a user for yourself first:
          from then on everybody has to log in.
        </Notice>
      )}
      <Users open={setOpen} />
      {me.login !== "none" && <Tokens open={setOpen} />}
      {open?.what === "token" && <NewToken onClose={close} />}
      {open?.what === "user" && <UserDialog user={open.user} onClose={close} />}
      {open?.what === "revoke" && (
        <Confirm
          title={`Revoke ${open.token.name}`}
          text="The next request with this token is refused. It cannot be brought back."
          verb="Revoke"
          change={(key) => remove("/api/v1/tokens/{token_id}", { path: { token_id: open.token.id } }, { key })}
          touches="tokens"
          done={`${open.token.name} is revoked`}
          onClose={close}
        />
      )}
      {open?.what === "delete" && (
        <Confirm
          title={`Delete ${open.user.name}`}
          text="They are logged out at once. What they did stays in the audit log."
          verb="Delete"
          change={(key) => remove("/api/v1/users", { query: { name: open.user.name } }, { key })}
          touches="users"
          done={`${open.user.name} is deleted`}
          onClose={close}
        />
      )}
    </Page>
  );
}

function Users({ open }: { open: (what: Open) => void }) {
  const users = useQuery({ queryKey: ["users"], queryFn: ({ signal }) => get("/api/v1/users", {}, { signal }) });
  return (
    <Section
      title="Users"
      flush
      actions={
        <Button icon="plus" onClick={() => open({ what: "user", user: null })}>
          Add a user
        </Button>
      }
    >
      {users.error && <ErrorNotice error={users.error} retry={() => void users.refetch()} />}
      {users.isPending && <Waiting lines={3} />}
      {users.data?.items.length === 0 && (
        <EmptyState icon="user" title="There are no users">
          <p>A user logs in to the console with a name and a password.</p>
        </EmptyState>
      )}
      {users.data && users.data.items.length > 0 && (
        <Table caption="Users" columns={ofUsers(open)} rows={users.data.items} keyOf={({ name }) => name} bare />
      )}
    </Section>
  );
}

function ofUsers(open: (what: Open) => void): readonly Column<User>[] {
  return [
    { head: "Name", grows: true, cell: ({ name }) => <b>{name}</b> },
    { head: "Role", cell: ({ role }) => role },
    { head: "Added", cell: ({ createdAt }) => <Time at={createdAt} /> },
    {
      head: "Change",
      cell: (user) => (
        <RowActions>
          <Button kind="quiet" icon="edit" iconOnly onClick={() => open({ what: "user", user })}>
            {`Change ${user.name}`}
          </Button>
          <Button kind="quiet" icon="discard" iconOnly onClick={() => open({ what: "delete", user })}>
            {`Delete ${user.name}`}
          </Button>
        </RowActions>
      ),
    },
  ];
}

function Tokens({ open }: { open: (what: Open) => void }) {
  const tokens = useQuery({ queryKey: ["tokens"], queryFn: ({ signal }) => get("/api/v1/tokens", {}, { signal }) });
  return (
    <Section
      title="Tokens"
      flush
      actions={
        <Button icon="plus" onClick={() => open({ what: "token" })}>
          Make a token
        </Button>
      }
    >
      {tokens.error && <ErrorNotice error={tokens.error} retry={() => void tokens.refetch()} />}
      {tokens.isPending && <Waiting lines={3} />}
      {tokens.data?.items.length === 0 && (
        <EmptyState icon="policies" title="There are no tokens">
          <p>
            A program sends one as <code>Authorization: Bearer …</code> with each request.
          </p>
        </EmptyState>
      )}
      {tokens.data && tokens.data.items.length > 0 && (
        <Table caption="Tokens" columns={ofTokens(open)} rows={tokens.data.items} keyOf={({ id }) => id} bare />
      )}
    </Section>
  );
}

function ofTokens(open: (what: Open) => void): readonly Column<Token>[] {
  return [
    { head: "Name", grows: true, cell: ({ name }) => <b>{name}</b> },
    { head: "Role", cell: ({ role }) => role },
    { head: "State", unbroken: true, cell: (token) => <Standing token={token} /> },
    {
      head: "Made",
      unbroken: true,
      cell: ({ createdAt, createdBy }) => (
        <span>
          <Time at={createdAt} /> by {createdBy}
        </span>
      ),
    },
    {
      head: "Change",
      cell: (token) =>
        token.revokedAt === null ? (
          <RowActions>
            <Button kind="quiet" onClick={() => open({ what: "revoke", token })} aria-label={`Revoke ${token.name}`}>
              Revoke
            </Button>
          </RowActions>
        ) : (
          <span />
        ),
    },
  ];
}

function Standing({ token }: { token: Token }) {
  if (token.revokedAt !== null) return <Badge tone="archived">revoked</Badge>;
  if (token.expiresAt === null) return <Badge tone="resolved">for ever</Badge>;
  if (Date.parse(token.expiresAt) < Date.now()) return <Badge tone="manual">expired</Badge>;
  return (
    <span>
      <Badge tone="resolved">valid</Badge> ends <Time at={token.expiresAt} />
    </span>
  );
}
