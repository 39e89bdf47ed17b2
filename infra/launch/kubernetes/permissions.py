"""Permission checks for the launcher and for service accounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superworkflow.infra.launch.kubernetes.api import ApiError, Json, KubernetesApi


@dataclass(frozen=True)
class Check:
    """Outcome of one check; `ok` is None where it could not be made."""

    name: str
    ok: bool | None
    detail: str


async def own_right(api: KubernetesApi, group: str, resource: str, sub: str, verbs: Sequence[str]) -> Check:
    """Check the launcher's own permission."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    what = {"group": group, "resource": resource, "subresource": sub}
    refused = await _refused(api, path, review, {}, what, verbs)
    name = f"right: {resource}{'/' + sub if sub else ''}"
    if refused:
        return Check(name, False, f"may not {', '.join(refused)} in {api.namespace}; see infra/kubernetes/rbac.yaml")
    return Check(name, True, ", ".join(verbs))


async def account_rights(api: KubernetesApi, account: str, title: str, resource: str, verbs: Sequence[str]) -> Check:
    """Check the permissions of a service account of the namespace.

    Args:
        api: the cluster.
        account: its name.
        title: of the check.
        resource: plural, such as `pods`.
        verbs: what it is to do with them.
    """
    path = f"/apis/authorization.k8s.io/v1/namespaces/{api.namespace}/localsubjectaccessreviews"
    review = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": api.namespace},
    }  # fmt: skip
    subject = {
        "user": f"system:serviceaccount:{api.namespace}:{account}",
        "groups": ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{api.namespace}"],
    }
    try:
        refused = await _refused(api, path, review, subject, {"group": "", "resource": resource}, verbs)
    except ApiError as error:
        return Check(title, None, f"not permitted to query its rights ({error.status})")
    if refused:
        detail = f"may not {', '.join(refused)} {resource} in {api.namespace}; see infra/kubernetes/rbac.yaml"
        return Check(title, False, detail)
    return Check(title, True, f"{resource}: {', '.join(verbs)}")


async def _refused(
    api: KubernetesApi, path: str, review: Json, subject: Json, what: Json, verbs: Sequence[str]
) -> list[str]:
    """Those of the verbs that a review of this kind denies."""
    refused = []
    for verb in verbs:
        attributes = {"namespace": api.namespace, **what, "verb": verb}
        answer = await api.create(path, {**review, "spec": {**subject, "resourceAttributes": attributes}})
        if not answer["status"].get("allowed"):
            refused.append(verb)
    return refused
