"""The pages of the console.

How to add a page
-----------------

1. A view, in a module of ``views/``: ``async def view(visit: Visit) -> Shown``. ``Visit`` has the
   query (``visit.query``), what is known of the cluster (``visit.cluster``), the commands of the
   visitor (``await visit.calls.to(address, "SLOWLOG", "GET")``: errors are values), and the user
   and role. Raise ``Missing`` with a sentence where what was asked for is not there.
2. A template in ``templates/`` that begins with ``{% extends layout %}``. What is in
   ``{% block live %}`` is rendered again every two seconds and put in place in the browser, for as
   long as the page is open: the view is just called again, so it must be cheap. Forms with fields
   to fill in go into ``{% block still %}``. Rows that can move get a ``data-key``. Names of
   queues are shown by the filter ``name`` and stand in addresses by ``url("/queue", name=...)``;
   the macros of ``parts.html`` make tables, tiles and buttons of actions.
3. A line in ``pages.PAGES``: path, title (empty: not in the navigation), view, template.
4. What can be done there: lines in a table of ``model/actions.py``, or of a module beside it that
   ``ACTIONS`` takes in. ``{{ button("purge", queue=row.name) }}`` is a button of one field or more,
   which is not there for visitors who may not; the form, its token, the question before it, the
   check of the role, the commands and the audit line follow from the table.
5. Register the address with the tests: a line in ``PAGES`` of ``tests/support/console.py`` has it
   looked at on wide and narrow screens, light and dark, with hostile names and as a viewer.

Nothing is inline: no script, no style, no attribute ``style`` or ``onclick``; the policy of the
pages (``headers.py``) forbids it. A page can be read without JavaScript.
"""
