/* SPDX-License-Identifier: BSD-2-Clause */
#include "uncaught.h"

#include <unwind.h>

#include "run.h"

_Unwind_Reason_Code
uncaught_personality(int version, _Unwind_Action actions, _Unwind_Exception_Class exception_class,
                     struct _Unwind_Exception *exception, struct _Unwind_Context *context)
    __attribute__((used)) HIDDEN; /* by an assembler's directive alone */

/* Called through the unwind tables, for the frame of a function with UNCAUGHT_TOLD. */
_Unwind_Reason_Code uncaught_personality(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class exception_class,
                                         struct _Unwind_Exception *exception,
                                         struct _Unwind_Context *context)
{
    (void)version;
    (void)exception_class;
    (void)exception;
    (void)context;
    if (actions & _UA_SEARCH_PHASE) /* not when a thread ends: that is not searched for */
        run_tell_uncaught();
    return _URC_CONTINUE_UNWIND;
}
