"""The GraphQL documents bandsync sends. How their answers become rows is in `graphql`.

Costs follow from GitHub's formula (GitHub docs, "Rate limits and query limits for the GraphQL API"): the requests
needed to fill each connection, one for each parent, divided by 100. So the innermost `first` costs nothing, and a
connection of which only `totalCount` is read counts as none. For 100 items each, the changes cost 3 points and
everything else 1.
"""

_CHANGE_FIELDS = """
fragment Who on Actor {
  __typename
  login
  ... on User { databaseId }
  ... on Bot { databaseId }
  ... on Mannequin { databaseId }
  ... on Organization { databaseId }
}
fragment Feed on PullRequestConnection {
  totalCount
  pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
  edges {
    cursor
    node {
      fullDatabaseId id number title state isDraft url
      author { ...Who }
      mergedBy { ...Who }
      baseRefName baseRefOid headRefName headRefOid
      additions deletions changedFiles
      createdAt updatedAt closedAt mergedAt
      mergeCommit { oid }
      reviewDecision
      comments { totalCount }
      labels(first: 100) { nodes { name } }
      commits(first: 1) { totalCount nodes { commit { authoredDate } } }
      reviews(first: 1) { totalCount nodes { submittedAt } }
    }
  }
}
"""

# Two documents, so that `first` and `last` are never in one call: GitHub takes exactly one of them.
CHANGES_FORWARD = (
    """
query ChangesForward($owner: String!, $name: String!, $size: Int!, $cursor: String) {
  rateLimit { cost }
  repository(owner: $owner, name: $name) {
    databaseId id nameWithOwner
    pullRequests(first: $size, after: $cursor, orderBy: {field: UPDATED_AT, direction: ASC}) { ...Feed }
  }
}
"""
    + _CHANGE_FIELDS
)

CHANGES_BACKWARD = (
    """
query ChangesBackward($owner: String!, $name: String!, $size: Int!, $cursor: String) {
  rateLimit { cost }
  repository(owner: $owner, name: $name) {
    databaseId id nameWithOwner
    pullRequests(last: $size, before: $cursor, orderBy: {field: UPDATED_AT, direction: ASC}) { ...Feed }
  }
}
"""
    + _CHANGE_FIELDS
)

# `checkType` defaults to LATEST, which leaves out superseded attempts and counts without them.
SUITES = """
query Suites($ids: [ID!]!, $size: Int!, $cursor: String) {
  rateLimit { cost }
  nodes(ids: $ids) {
    __typename
    ... on CheckSuite {
      id status
      workflowRun { databaseId }
      checkRuns(first: $size, after: $cursor, filterBy: {checkType: ALL}) {
        totalCount
        pageInfo { hasNextPage endCursor }
        nodes { databaseId id name status conclusion startedAt completedAt detailsUrl url }
      }
    }
  }
}
"""

ACTIVITY = """
query Activity($ids: [ID!]!) {
  rateLimit { cost }
  nodes(ids: $ids) {
    __typename
    ... on Repository {
      databaseId id nameWithOwner pushedAt isArchived
      pullRequests(first: 1, orderBy: {field: UPDATED_AT, direction: DESC}) { totalCount nodes { updatedAt } }
    }
  }
}
"""

DOCUMENTS = {
    "ChangesForward": CHANGES_FORWARD,
    "ChangesBackward": CHANGES_BACKWARD,
    "Suites": SUITES,
    "Activity": ACTIVITY,
}
