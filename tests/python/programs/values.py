"""What could be wrong in silence: arguments, derivatives, states. One start of torch for three modules."""

import claims
import derivatives
import odd_arguments
import odd_states

claims.check(*odd_arguments.CLAIMS, *derivatives.CLAIMS, *odd_states.CLAIMS)
