"""Why an action is not done."""

from dataclasses import dataclass

from disque_console.model.action import Action, Form
from disque_console.web.visit import Visit


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a visitor may not do something. why: ``token`` or ``role``, for the audit. title, text:
    for the visitor."""

    why: str
    title: str
    text: str


def refusal(visit: Visit, form: Form, action: Action) -> Refusal | None:
    """Why the visitor may not do this; None if the visitor may do it."""
    if refused := role_refusal(visit, action):
        return refused
    if not visit.is_from_here(form):
        text = "The form is too old. Go back and reload the page."
        return Refusal("token", "Not done", text)
    return None


def role_refusal(visit: Visit, action: Action) -> Refusal | None:
    """Why the visitor's role is too low for this; None if it is not."""
    if visit.role >= action.role:
        return None
    text = f"“{action.title}” needs the role {action.role}; yours is {visit.role}."
    return Refusal("role", "Not allowed", text)


def no_audit(error: OSError) -> str:
    """Why an action whose audit line cannot be written is not done."""
    return f"Nothing was done, because the audit cannot be written: {error.strerror or error}."
