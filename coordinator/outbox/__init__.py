"""The outbox: a table of the user's database into which a transaction writes the jobs that it submits.

    write    `submit_on_commit(…, outbox=True)` adds a row to the current transaction
    commit   the row becomes visible, or nobody ever sees it; after the commit, the process wakes the relay
    submit   the relay, in the maintenance process of one node, submits the rows in the order of their numbers
    delete   it deletes the rows that it has submitted
    forget   Redis forgets the ids of these rows

The relay finds rows because they are there, and remembers no last number: a number may become visible after greater
ones. What it reads at once are the lowest of all visible rows. So of two rows with one key, of which one was committed
before the other was written, the first is submitted first. Transactions that overlap have no order.

A kill between any two steps repeats the later ones. A row that is submitted again makes no second job: Redis keeps its
id from the submit until the row is deleted, even if the job is over and its record gone. All three steps of the relay
happen under the lock of the lane `coordinator/outbox/…`, which Redis checks in each of them: a relay that was paused,
and wakes when another has taken over, submits nothing and forgets nothing. What it deletes was submitted.
"""
